"""The configuration of `penstock run`.

Sources in ascending priority: `config` in the file of the topology, --log-config, --config, --set,
the options with their own names.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from penstock.cli.errors import CommandError, UsageError
from penstock.cli.parsing import LOG_CONFIG_VARIABLE, LOG_VARIABLE
from penstock.config import StreamsConfig
from penstock.properties import parse_settings, read_properties

if TYPE_CHECKING:
    from penstock.cli.topology_loader import TopologyTarget

#: Variables of the module that may hold the configuration.
CONFIG_NAMES = ("config", "CONFIG")


def build_config(target: TopologyTarget, args: argparse.Namespace) -> StreamsConfig:
    """Merge the sources. A missing application id or log raises `UsageError`."""
    given: dict[str, Any] = {}
    log_config = getattr(args, "log_config", "") or os.environ.get(LOG_CONFIG_VARIABLE, "")
    for file in ([log_config] if log_config else []) + args.config:
        given |= read_properties(file)
    given |= dict(args.set)
    options = {
        "application.id": args.application_id, "state.dir": args.state_dir,
        "log": getattr(args, "log", None),
    }
    given |= {name: value for name, value in options.items() if value is not None}
    config = _merge_with_module(target, given)
    if config.log is None:
        address = os.environ.get(LOG_VARIABLE, "")
        if not address:
            raise UsageError(
                f"No log is given. Use --log PATH, set {LOG_VARIABLE}, or set log= in the "
                f"configuration in '{target.location}'."
            )
        config = config.with_(log=address)
    return config


def _merge_with_module(target: TopologyTarget, given: Mapping[str, Any]) -> StreamsConfig:
    base = next(
        (getattr(target.module, name) for name in CONFIG_NAMES if hasattr(target.module, name)),
        None,
    )
    if isinstance(base, StreamsConfig):
        known, extra = parse_settings(given, {field.name for field in fields(StreamsConfig)})
        return base.with_(**known, extra={**base.extra, **extra})
    if base is not None and not isinstance(base, Mapping):
        raise CommandError(
            f"The configuration in '{target.location}' has the type {type(base).__name__}. "
            "It must be a StreamsConfig or a mapping with Kafka's setting names."
        )
    properties = {**(base or {}), **given}
    if not {"application.id", "application_id"} & properties.keys():
        raise UsageError(
            "The application has no id. Use --application-id NAME, or set application.id in the "
            f"configuration in '{target.location}'. The id is the prefix of internal topics and "
            "the consumer group id, and must not change between runs."
        )
    return StreamsConfig.from_properties(properties)
