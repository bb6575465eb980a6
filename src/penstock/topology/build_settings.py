"""Settings that shape a topology when it is built: checks that they took effect.

The builder applies optimizations and the processor wrapper. A configuration that comes later, with
`Streams` or the test driver, cannot apply them any more, so it must not ask for them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from penstock.config import StreamsConfig
from penstock.errors import ConfigException, TopologyException

if TYPE_CHECKING:
    from penstock.topology.topology import Topology


def check_build_settings(topology: Topology, config: StreamsConfig) -> None:
    """Raise if the configuration sets what the topology was not built with."""
    check_explicit_names(topology.generated_names, config)
    if topology.optimizations is not None:
        missing = config.topology_optimization - topology.optimizations
        if missing:
            raise _not_applied(
                "topology.optimization", f"without: {', '.join(sorted(missing))}"
            )
    built_with = None if topology.config is None else topology.config.processor_wrapper
    wanted = config.processor_wrapper
    if wanted is not None and _class_of(wanted) is not _class_of(built_with):
        found = "without a wrapper" if built_with is None else f"with {_class_of(built_with)}"
        raise _not_applied("processor.wrapper.class", found)


def check_explicit_names(generated: Collection[str], config: StreamsConfig) -> None:
    """Raise if the configuration forbids generated names of stores and internal topics."""
    if generated and config.ensure_explicit_internal_resource_naming:
        raise TopologyException(
            "ensure_explicit_internal_resource_naming is set, but these names were generated: "
            f"{', '.join(generated)}. Name the steps and stores that they belong to."
        )


def _class_of(wrapper: Any) -> Any:
    return wrapper if wrapper is None or isinstance(wrapper, type) else type(wrapper)


def _not_applied(setting: str, found: str) -> ConfigException:
    return ConfigException(
        f"The setting {setting} has no effect on a topology that is built already.\n"
        f"This topology was built {found}.\n"
        "Create the builder with the configuration: StreamsBuilder(config) or Topology(config). "
        "For `penstock run`, build the topology in a function."
    )
