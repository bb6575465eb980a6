"""A real Apache Kafka on this machine, without Docker and without Maven: `penstock broker`.

    jars.py        Kafka's jars: where they are kept, and how they are fetched once
    repository.py  which Maven repository this machine uses
    properties.py  the settings of a node
    ports.py       where they listen
    processes.py   processes that are known by their id and their command line
    cluster.py     the nodes of one data folder: start, stop, status
    errors.py      what can go wrong

It needs Java 17 or newer. Nothing here talks Kafka's protocol, so no client is imported.
"""
