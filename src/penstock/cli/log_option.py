"""Opens the log that `--log` or the environment names."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.cli.errors import CommandError, UsageError
from penstock.cli.parsing import LOG_CONFIG_VARIABLE, LOG_VARIABLE
from penstock.cli.reachability import REFUSED_TIMEOUT_S, wait_while_refused
from penstock.log import Log, open_log, scheme_of
from penstock.log.scheme import SEPARATOR
from penstock.properties import read_properties

#: Report a cluster that has not responded after this time.
SLOW_CONNECTION_S = 5.0


def open_log_option(args: argparse.Namespace, *, create: bool = False) -> Log:
    """Open the log. Only `create` creates a file, so that a misspelled path does not."""
    address: str = getattr(args, "log", "") or os.environ.get(LOG_VARIABLE, "")
    if not address:
        raise UsageError(f"No log is given. Use --log PATH or set {LOG_VARIABLE}.")
    if not create and not scheme_of(address).may_exist(address):
        raise CommandError(
            f"The log '{address}' does not exist. Create it, with its first topic, with "
            "`penstock topics create`."
        )
    options = _connection_settings(args, address)
    with report_slow_connection(address, quiet=getattr(args, "quiet", False)):
        return open_log(address, create=create, **options)


@contextmanager
def report_slow_connection(
    address: str, *, quiet: bool = False, refused_timeout_s: float = REFUSED_TIMEOUT_S
) -> Iterator[None]:
    """Write a line to standard error if a remote log does not respond for a while.

    Raise if its servers refuse connections for longer than `refused_timeout_s`.
    """
    scheme = scheme_of(address)
    wait_while_refused(address, refused_timeout_s, _ignore if quiet else _write_stderr)
    if quiet or not scheme.capabilities.is_remote:
        yield
        return
    servers = address.partition(SEPARATOR)[2]
    message = f"Waiting for {scheme.title} at {servers} ..."
    timer = threading.Timer(SLOW_CONNECTION_S, _write_stderr, [message])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _ignore(text: str) -> None:
    """Write nothing."""


def _write_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _connection_settings(args: argparse.Namespace, address: str) -> dict[str, Any]:
    file: str = getattr(args, "log_config", "") or os.environ.get(LOG_CONFIG_VARIABLE, "")
    if not file:
        return {}
    if not scheme_of(address).capabilities.takes_connection_settings:
        raise UsageError(
            f"The log '{address}' is a file and has no connection settings. Remove --log-config "
            f"and unset {LOG_CONFIG_VARIABLE}, or use a cluster: --log kafka://HOST:PORT."
        )
    return read_properties(file)
