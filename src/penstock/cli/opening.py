"""The log that a command works on."""

from __future__ import annotations

import argparse
import os

from penstock.cli.errors import CommandFailed, UsageError
from penstock.cli.parsing import LOG_CONFIG_VARIABLE, LOG_VARIABLE
from penstock.log import Log, open_log
from penstock.properties import read_properties


def opened(args: argparse.Namespace, *, create: bool = False) -> Log:
    """The log that was named; a new one only if `create`, so that a slip makes no file."""
    address: str = getattr(args, "log", "") or os.environ.get(LOG_VARIABLE, "")
    if not address:
        raise UsageError(f"No log was named. Give --log PATH or set {LOG_VARIABLE}.")
    if not create and "://" not in address and not os.path.exists(address):
        raise CommandFailed(
            f"No log at '{address}'. 'penstock topics create' makes one with its first topic."
        )
    return open_log(address, create=create, **_options(args, address))


def _options(args: argparse.Namespace, address: str) -> dict[str, str]:
    """How to reach and to convince the brokers of a cluster."""
    file: str = getattr(args, "log_config", "") or os.environ.get(LOG_CONFIG_VARIABLE, "")
    if not file:
        return {}
    if "://" not in address:
        raise UsageError(
            f"The log '{address}' is a file, which needs no settings to be reached. Leave out "
            f"--log-config and {LOG_CONFIG_VARIABLE}, or name a cluster: --log kafka://HOST:PORT."
        )
    return read_properties(file)
