"""The log that a command works on."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.cli.errors import CommandFailed, UsageError
from penstock.cli.parsing import LOG_CONFIG_VARIABLE, LOG_VARIABLE
from penstock.log import Log, open_log, scheme_of
from penstock.log.scheme import SEPARATOR
from penstock.properties import read_properties

#: Seconds without an answer from a cluster after which people are told what is waited for.
TOLD_AFTER_S = 5.0


def opened(args: argparse.Namespace, *, create: bool = False) -> Log:
    """The log that was named; a new one only if `create`, so that a slip makes no file."""
    address: str = getattr(args, "log", "") or os.environ.get(LOG_VARIABLE, "")
    if not address:
        raise UsageError(f"No log was named. Give --log PATH or set {LOG_VARIABLE}.")
    if not create and not scheme_of(address).may_exist(address):
        raise CommandFailed(
            f"No log at '{address}'. 'penstock topics create' makes one with its first topic."
        )
    options = _options(args, address)
    with telling_of_waits(address, quiet=getattr(args, "quiet", False)):
        return open_log(address, create=create, **options)


@contextmanager
def telling_of_waits(address: str, *, quiet: bool = False) -> Iterator[None]:
    """Say what is waited for, if it takes long. Clusters only: a file answers at once."""
    scheme = scheme_of(address)
    if quiet or not scheme.capabilities.is_remote:
        yield
        return
    servers = address.partition(SEPARATOR)[2]
    timer = threading.Timer(TOLD_AFTER_S, _tell, [f"Waiting for {scheme.title} at {servers} ..."])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _options(args: argparse.Namespace, address: str) -> dict[str, Any]:
    """How to reach and to convince the brokers of a cluster."""
    file: str = getattr(args, "log_config", "") or os.environ.get(LOG_CONFIG_VARIABLE, "")
    if not file:
        return {}
    if not scheme_of(address).capabilities.takes_connection_settings:
        raise UsageError(
            f"The log '{address}' is a file, which needs no settings to be reached. Leave out "
            f"--log-config and {LOG_CONFIG_VARIABLE}, or name a cluster: --log kafka://HOST:PORT."
        )
    return read_properties(file)
