"""Penstock against Kafka Streams 4.3.0: the same cases, answer by answer.

`cases.py` reads the cases, `interpreter.py` builds a case's topology with penstock's DSL out of
the words of `functions.py` and `user_processors.py`, `runner.py` feeds the events and collects
what came out, `compare.py` says what differs from what Kafka Streams answered.
"""
