"""Serdes: how keys and values become bytes and back. The wire formats are Kafka's."""

from __future__ import annotations

from penstock.serdes.base import Serde
from penstock.serdes.builtin import Serdes
from penstock.serdes.windowed import WindowedSerde, WindowedSerdes

__all__ = ["Serde", "Serdes", "WindowedSerde", "WindowedSerdes"]
