"""Serdes: serializers and deserializers of keys and values, in Kafka's wire formats.

    base        Serde, and the errors of serdes
    builtin     Serdes: strings, numbers, lists, JSON and others
    headers     HeadersSerde: serdes that read and write headers
    json        the functions behind Serdes.json
    arguments   serdes and types as arguments
    types       what an annotation stands for, and which types JSON supports
    msgpack     the functions behind Serdes.msgpack
    registry    SchemaRegistry: Avro, Protobuf and JSON Schema; not imported here
    windowed    WindowedSerdes: keys of windowed results
    change      old and new values of a table in a repartition topic
"""

from __future__ import annotations

from penstock.serdes.base import Serde
from penstock.serdes.builtin import Serdes
from penstock.serdes.headers import HeadersSerde
from penstock.serdes.windowed import WindowedSerde, WindowedSerdes

__all__ = ["HeadersSerde", "Serde", "Serdes", "WindowedSerde", "WindowedSerdes"]
