"""The state record of a replica. It changes in the same transactions as the rows."""

from __future__ import annotations

import msgspec

from penstock.errors import TaskCorruptedException
from penstock.stores.bytes.lmdb.environment import LmdbTransaction
from penstock.stores.replica.layouts import StoreLayout

#: Increases when the format of the rows or of this record changes. Other formats are rebuilt.
FORMAT = 1
META = "meta"
_KEY = b"state"

#: The names that the stored record has.
_STORED_NAMES = {
    "tombstones_removed_to": "emptied", "staged_run": "aside", "rebuild_batch": "anew",
}


class ReplicaState(msgspec.Struct, rename=_STORED_NAMES):
    """The state of a replica. The mappings have the store name as key."""

    format: int
    log_id: str
    #: The largest epoch of a plan that wrote to the replica.
    epoch: int = 0
    #: The changelog offset that the rows have reached.
    positions: dict[str, int] = msgspec.field(default_factory=dict)
    #: `tombstones_removed_to` of the changelog when the store was last restored completely.
    tombstones_removed_to: dict[str, int] = msgspec.field(default_factory=dict)
    #: State of the restore up to the position that the rows do not hold.
    clocks: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    #: When the last records were read, in epoch milliseconds.
    read_at: dict[str, int] = msgspec.field(default_factory=dict)
    #: The batch and attempt whose staged writes to unlogged stores are applied.
    staged_run: tuple[int, int] = (0, 0)
    #: Input topic -> partition -> the next offset, at the last commit that a lane has written: the
    #: rows contain the effect of all records before.
    inputs: dict[str, dict[int, int]] = msgspec.field(default_factory=dict)
    #: Store -> its layout, for readers without a topology. Older replicas lack it.
    layouts: dict[str, StoreLayout] = msgspec.field(default_factory=dict)
    #: The last batch that ordered a rebuild of this replica; -1 if none did.
    rebuild_batch: int = -1


def read_state(transaction: LmdbTransaction) -> ReplicaState | None:
    """Read the record; None in a new environment."""
    rows = transaction.open(META)
    data = None if rows is None else rows.get(_KEY)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=ReplicaState)
    except msgspec.DecodeError as error:
        raise TaskCorruptedException(f"The state of a replica cannot be read: {error}") from error


def require_state(transaction: LmdbTransaction) -> ReplicaState:
    """Read the record of an environment that is in use; fails if it is missing."""
    state = read_state(transaction)
    if state is None:
        raise TaskCorruptedException("The state of a replica is missing.")
    return state


def write_state(transaction: LmdbTransaction, state: ReplicaState) -> None:
    """Write the record as part of a transaction."""
    transaction.open_writable(META).write([(_KEY, msgspec.json.encode(state))])
