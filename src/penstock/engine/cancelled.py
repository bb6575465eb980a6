"""A batch that somebody did not want to wait for."""

from __future__ import annotations

from penstock.errors import StreamsException


class BatchCancelled(StreamsException):
    """A running batch was given up. Raised by whatever computes it, and by the engine before a
    commit, so that nothing of it happens."""

    def __init__(self, application_id: str, batch: int) -> None:
        super().__init__(
            f"Batch {batch} of '{application_id}' was cancelled. Nothing of it has happened: the "
            "next start does it again."
        )
