"""Compares penstock with Kafka Streams 4.3.0, case by case.

`cases.py` reads the cases, `interpreter.py` builds the topology of a case with penstock's DSL and
the functions of `functions.py` and `user_processors.py`, `runner.py` feeds the events and collects
the results, `compare.py` compares them with the results of Kafka Streams.
"""
