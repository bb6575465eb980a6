"""Runs the clients example."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from showcase import START_MS, Input, Showcase, Types, main

from clients.topology import (
    ACCOUNTS,
    APPLICATION_ID,
    CLIENTS,
    ENRICHED,
    PROSPECTS,
    Account,
    Client,
    EnrichedAccount,
    Prospect,
    build,
)

NAMES = ("augusto", "beatriz", "carla")


def inputs() -> Iterator[Input]:
    """Three clients; the last one has no status yet, and the first is blocked later."""
    for id_, name in enumerate(NAMES, start=1):
        account = Account(id_, f"000.000.000-{id_ - 1}")
        yield Input(PROSPECTS, str(id_), Prospect(id_, name), START_MS + id_)
        yield Input(ACCOUNTS, str(id_), account, START_MS + id_ + 10)
    for id_ in (1, 2):
        yield Input(ENRICHED, str(id_), EnrichedAccount(id_, "REGULAR"), START_MS + id_ + 20)
    yield Input(ENRICHED, "1", EnrichedAccount(1, "BLOCKED"), START_MS + 30)


CLIENTS_DEMO = Showcase(
    APPLICATION_ID, "clients: prospects, accounts and their status in one table", build, inputs,
    {CLIENTS: Types(str, Client, latest=True)}, partitions=4,
)

if __name__ == "__main__":
    sys.exit(main(CLIENTS_DEMO))
