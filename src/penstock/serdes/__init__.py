"""Serdes: serializers and deserializers of keys and values, in Kafka's wire formats.

    base        Serde, and the errors of serdes
    builtin     Serdes: strings, numbers, lists, JSON and others
    json        the functions behind Serdes.json
    windowed    WindowedSerdes: keys of windowed results
    change      old and new values of a table in a repartition topic
"""

from __future__ import annotations

from penstock.serdes.base import Serde
from penstock.serdes.builtin import Serdes
from penstock.serdes.windowed import WindowedSerde, WindowedSerdes

__all__ = ["Serde", "Serdes", "WindowedSerde", "WindowedSerdes"]
