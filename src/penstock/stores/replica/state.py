"""Where a replica stands: kept in it, and changed in the same transactions as its rows."""

from __future__ import annotations

import msgspec

from penstock.errors import TaskCorruptedException
from penstock.stores.bytes.lmdb import Transaction

#: Grows when the rows or this record are kept in another way; other formats are restored anew.
FORMAT = 1
META = "meta"
_KEY = b"state"


class ReplicaState(msgspec.Struct):
    """The record itself."""

    format: int
    log_id: str
    #: The largest epoch of a plan that wrote.
    epoch: int = 0
    #: Store -> offset: the rows are those of the changelog up to there.
    positions: dict[str, int] = msgspec.field(default_factory=dict)
    #: Store -> `tombstones_removed_to` when the store was last filled from nothing.
    emptied: dict[str, int] = msgspec.field(default_factory=dict)
    #: Store -> what its rows do not tell about the changelog up to the position.
    clocks: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    #: Store -> when what it holds was read, in epoch milliseconds.
    read_at: dict[str, int] = msgspec.field(default_factory=dict)
    #: The batch and attempt whose rows of unlogged stores are in.
    aside: tuple[int, int] = (0, 0)
    #: The batch that ordered this directory, if one did.
    anew: int = -1


def read_state(transaction: Transaction) -> ReplicaState | None:
    """The record as a transaction sees it; None in a new directory."""
    rows = transaction.rows(META)
    data = None if rows is None else rows.get(_KEY)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=ReplicaState)
    except msgspec.DecodeError as error:
        raise TaskCorruptedException(f"The state of a replica cannot be read: {error}") from error


def known_state(transaction: Transaction) -> ReplicaState:
    """The record of a directory that is in use."""
    state = read_state(transaction)
    if state is None:
        raise TaskCorruptedException("The state of a replica is missing.")
    return state


def write_state(transaction: Transaction, state: ReplicaState) -> None:
    """Put the record, with everything else that the transaction writes."""
    transaction.writable(META).write([(_KEY, msgspec.json.encode(state))])
