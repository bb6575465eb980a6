"""A local Apache Kafka without Docker or Maven: the implementation of `penstock broker`.

    cluster.py     start, stop and status of the brokers of one data directory
    processes.py   processes identified by their id and command line
    ports.py       ports of the brokers
    properties.py  `server.properties` of a broker
    jars.py        Kafka's jars: the cache and the download
    repository.py  the Maven repository to download from
    errors.py      the exceptions

Needs Java 17 or newer. Does not use Kafka's protocol, so it imports no client.
"""
