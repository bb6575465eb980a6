"""Three tables of the same key, joined into clients.

    tp_prospects ──────────── table ─┐
    tp_accounts ───────────── table ─┼─ join ─ tp_clients
    tp_enrichment_accounts ── table ─┘

A client appears when all three tables have its id, and follows every change of each of them. Its
stores are restored from the topics `streams-tp_prospects-state-store-changelog` and similar.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from penstock import StreamsBuilder, Topology

#: The prefix of the changelog topics.
APPLICATION_ID = "streams"
PROSPECTS, ACCOUNTS, ENRICHED = "tp_prospects", "tp_accounts", "tp_enrichment_accounts"
CLIENTS = "tp_clients"


@dataclass(frozen=True)
class Prospect:
    id: int
    name: str


class Account(msgspec.Struct, frozen=True, rename="camel"):
    id: int
    account_number: str


@dataclass(frozen=True)
class EnrichedAccount:
    id: int
    status: str


class Client(msgspec.Struct, frozen=True, rename="camel"):
    """A prospect with an account whose status is known."""

    id: int
    name: str
    account_number: str
    status: str = ""


def open_account(prospect: Prospect, account: Account) -> Client:
    """A client whose status is not known yet."""
    return Client(prospect.id, prospect.name, account.account_number)


def set_status(client: Client, enriched: EnrichedAccount) -> Client:
    """The client with the status of its account."""
    return msgspec.structs.replace(client, status=enriched.status)


def build() -> Topology:
    """The join of the three tables."""
    builder = StreamsBuilder()
    prospects = builder.table(PROSPECTS, key=str, value=Prospect, store=f"{PROSPECTS}-state-store")
    accounts = builder.table(ACCOUNTS, key=str, value=Account, store=f"{ACCOUNTS}-state-store")
    enriched = builder.table(
        ENRICHED, key=str, value=EnrichedAccount, store=f"{ENRICHED}-state-store"
    )
    clients = prospects.join(accounts, open_account).join(enriched, set_status)
    clients.to_stream().to(CLIENTS)
    return builder.build()
