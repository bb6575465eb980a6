"""Warnings about settings that the log of an application does not use."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.config import StreamsConfig
from penstock.log import scheme_of
from penstock.topology.topology import Topology


def log_warnings(topology: Topology, config: StreamsConfig) -> Iterator[str]:
    """Yield a line for every setting that has no effect in the log, with the reason."""
    assert config.log is not None
    ignored = scheme_of(config.log).ignored_settings
    for name, reason in ignored(config.app_configs()):
        yield f"The setting {name} has no effect: {reason}."
    for store in topology.stores.values():
        given = {f"topic.{name}": value for name, value in store.log_config.items()}
        for name, reason in ignored(given):
            yield (
                f"The setting {name.removeprefix('topic.')} of the changelog of store "
                f"'{store.name}' has no effect: {reason}."
            )
