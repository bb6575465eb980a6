"""The configuration that `penstock run` runs with, put together from all places that may say it.

Later ones win: the `config` of the file, --log-config, --config, --set, and the options with names
of their own.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from penstock.cli.errors import CommandFailed, UsageError
from penstock.cli.parsing import LOG_CONFIG_VARIABLE, LOG_VARIABLE
from penstock.config import StreamsConfig
from penstock.properties import parse_settings, read_properties

if TYPE_CHECKING:
    from penstock.cli.topology_loader import Found

#: Looked for in the file or module of the topology, in this order.
USUAL_NAMES = ("config", "CONFIG")


def config_of(found: Found, args: argparse.Namespace) -> StreamsConfig:
    """The configuration; says what is missing, and where it can be given."""
    given: dict[str, Any] = {}
    about_log = getattr(args, "log_config", "") or os.environ.get(LOG_CONFIG_VARIABLE, "")
    for file in ([about_log] if about_log else []) + args.config:
        given |= read_properties(file)
    given |= dict(args.set)
    options = {
        "application.id": args.application_id, "state.dir": args.state_dir,
        "log": getattr(args, "log", None),
    }
    given |= {name: value for name, value in options.items() if value is not None}
    config = _of_module(found, given)
    if config.log is None:
        address = os.environ.get(LOG_VARIABLE, "")
        if not address:
            raise UsageError(
                f"No log was named. Give --log PATH, set {LOG_VARIABLE}, or log= in the "
                f"configuration of '{found.where}'."
            )
        config = config.with_(log=address)
    return config


def _of_module(found: Found, given: Mapping[str, Any]) -> StreamsConfig:
    base = next(
        (getattr(found.module, name) for name in USUAL_NAMES if hasattr(found.module, name)), None
    )
    if isinstance(base, StreamsConfig):
        known, extra = parse_settings(given, {field.name for field in fields(StreamsConfig)})
        return base.with_(**known, extra={**base.extra, **extra})
    if base is not None and not isinstance(base, Mapping):
        raise CommandFailed(
            f"The configuration of '{found.where}' is a {type(base).__name__}. "
            "It must be a StreamsConfig, or a mapping of Kafka's names."
        )
    properties = {**(base or {}), **given}
    if not {"application.id", "application_id"} & properties.keys():
        raise UsageError(
            "The application has no id. Give --application-id NAME, or application.id in the "
            f"configuration of '{found.where}'. It names the application's internal topics and its "
            "consumer group, and must stay the same."
        )
    return StreamsConfig.from_properties(properties)
