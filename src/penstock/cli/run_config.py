"""The configuration of `penstock run`, `serve`, `describe` and `upgrade`.

Sources in ascending priority: `config` in the file of the topology, --log-config, --config,
environment variables (`environment.py`), --set, the options with their own names.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from penstock.cli.environment import environment_settings
from penstock.cli.errors import CommandError, UsageError
from penstock.cli.parsing import LOG_CONFIG_VARIABLE, LOG_VARIABLE
from penstock.config import StreamsConfig
from penstock.engine.observe.metrics import OTLP_ENDPOINT
from penstock.properties import parse_settings, read_properties

if TYPE_CHECKING:
    from penstock.cli.topology_loader import TopologyTarget

#: The application id of a topology that is only described.
_NO_ID = "described"
_ID_NAMES = {"application.id", "application_id"}


def build_config(target: TopologyTarget, args: argparse.Namespace) -> StreamsConfig:
    """Merge the sources. A missing application id or log raises `UsageError`."""
    log_config = getattr(args, "log_config", "") or os.environ.get(LOG_CONFIG_VARIABLE, "")
    given = _given_settings([log_config] if log_config else [], args)
    options = {
        "application.id": args.application_id, "state.dir": getattr(args, "state_dir", None),
        "log": getattr(args, "log", None), "execution": getattr(args, "execution", None),
        OTLP_ENDPOINT: getattr(args, "otlp", None),
    }
    given = _override(given, {name: value for name, value in options.items() if value is not None})
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


def build_description_config(target: TopologyTarget, args: argparse.Namespace) -> StreamsConfig:
    """Merge the sources for `penstock describe`, which needs neither an id nor a log."""
    given = _given_settings([], args)
    own = target.config
    has_id = isinstance(own, StreamsConfig) or bool(_ID_NAMES & {*given, *(own or ())})
    return _merge_with_module(target, given if has_id else {"application.id": _NO_ID, **given})


def _given_settings(files: list[str], args: argparse.Namespace) -> dict[str, Any]:
    given: dict[str, Any] = {}
    layers = [
        *map(read_properties, [*files, *args.config]), environment_settings(os.environ),
        dict(args.set),
    ]
    for layer in layers:
        given = _override(given, layer)
    return given


def _override(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two sources. `bootstrap.servers` of the upper one replaces `log` of the lower one."""
    hidden = {"log"} if "bootstrap.servers" in upper else set()
    return {name: value for name, value in lower.items() if name not in hidden} | dict(upper)


def _merge_with_module(target: TopologyTarget, given: Mapping[str, Any]) -> StreamsConfig:
    base = target.config
    if isinstance(base, StreamsConfig):
        known, extra = parse_settings(given, {field.name for field in fields(StreamsConfig)})
        return base.with_(**known, extra={**base.extra, **extra})
    if base is not None and not isinstance(base, Mapping):
        raise CommandError(
            f"The configuration in '{target.location}' has the type {type(base).__name__}. "
            "It must be a StreamsConfig or a mapping with Kafka's setting names."
        )
    properties = _override(base or {}, given)
    if not _ID_NAMES & properties.keys():
        raise UsageError(
            "The application has no id. Use --application-id NAME, or set application.id in the "
            f"configuration in '{target.location}'. The id is the prefix of internal topics and "
            "the consumer group id, and must not change between runs."
        )
    return StreamsConfig.from_properties(properties)
