"""`TopologyConfig`, and the configuration that builders and topologies use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from typing import Any

from penstock.config import StreamsConfig
from penstock.errors import ConfigException
from penstock.properties import parse_settings

#: The configuration of the `building_with` block, and the one that it replaces.
_building: ContextVar[tuple[StreamsConfig | None, StreamsConfig | None]] = ContextVar(
    "_building", default=(None, None)
)


@dataclass(frozen=True)
class TopologyConfig:
    """The configuration of an application with overrides for one topology.

    `overrides` are settings of `StreamsConfig`, by these names or by Kafka's.

    Example:
        >>> config = StreamsConfig(application_id="orders")
        >>> TopologyConfig(config, {"max.task.idle.ms": 5}).streams_config().max_task_idle_ms
        5
    """

    config: StreamsConfig
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.config, StreamsConfig):
            raise TypeError(
                f"TopologyConfig takes a StreamsConfig, not {type(self.config).__name__}."
            )
        self.streams_config()

    def streams_config(self) -> StreamsConfig:
        """Return the configuration with the overrides applied."""
        names = {f.name for f in fields(StreamsConfig)}
        settings, unknown = parse_settings(self.overrides, names)
        if unknown:
            raise ConfigException(
                f"A topology has no setting {', '.join(map(repr, sorted(unknown)))}. "
                "Use the names of StreamsConfig."
            )
        return self.config.with_(**settings)


def resolve_topology_config(
    config: StreamsConfig | TopologyConfig | None, default: StreamsConfig | None = None
) -> StreamsConfig | None:
    """Return the configuration given to a builder or a topology, with overrides applied.

    Without one it is `default`, then the configuration of an enclosing `building_with` block.
    """
    run_config, replaced = _building.get()
    if isinstance(config, TopologyConfig):
        if run_config is not None and config.config is replaced:
            config = replace(config, config=run_config)
        return config.streams_config()
    if config is None:
        config = default or run_config
    if config is not None and not isinstance(config, StreamsConfig):
        raise TypeError(
            f"The configuration of a topology is a StreamsConfig or a TopologyConfig, not "
            f"{type(config).__name__}. Convert properties with StreamsConfig.from_properties()."
        )
    return run_config if run_config is not None and config is replaced else config


@contextmanager
def building_with(
    config: StreamsConfig, *, instead_of: StreamsConfig | None = None
) -> Iterator[None]:
    """Let builders and topologies use this configuration during the block.

    It is their default, and it replaces `instead_of` where that is given explicitly.
    """
    token = _building.set((config, instead_of))
    try:
        yield
    finally:
        _building.reset(token)
