"""The registry entry of the embedded log. Its addresses are paths."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.log.scheme import LogCapabilities, LogScheme
from penstock.log.topic_config import WITHOUT_EFFECT
from penstock.setting_effects import CONNECTION_PREFIXES, CONNECTION_SETTINGS

_IGNORED_OF_TOPICS = frozenset(f"topic.{name}" for name in WITHOUT_EFFECT)
_CONNECTION_SETTINGS = frozenset(("bootstrap.servers", *CONNECTION_SETTINGS))


def _ignored_settings(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in sorted(settings.items()):
        if name == "replication.factor" and int(value) not in (-1, 1):
            yield name, "the embedded log is one file without replicas"
        elif name in _IGNORED_OF_TOPICS:
            yield name, "the embedded log has no segments, replicas or compression"
        elif name in _CONNECTION_SETTINGS or name.startswith(CONNECTION_PREFIXES):
            yield name, "the embedded log is a file and has no connections"


EMBEDDED = LogScheme(
    name="",
    title="the embedded log",
    address_form="a path",
    opener="penstock.log.embedded.log:open_embedded",
    capabilities=LogCapabilities(
        is_remote=False,
        takes_connection_settings=False,
        expires_offsets=False,
        reports_tombstones=True,
        cleans_itself=False,
    ),
    may_exist=os.path.exists,
    ignored_settings=_ignored_settings,
)
