"""How a process uses the file. Nothing of it is kept in the file."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.clock import Clock, wall_clock_ms
from penstock.errors import ConfigException

_SYNCHRONOUS = ("OFF", "NORMAL", "FULL")


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddedOptions:
    """The settings of one `EmbeddedLog`."""

    #: False: the file must be there already.
    create: bool = True
    read_only: bool = False
    #: When data is forced to the disk. "FULL": with every commit. "NORMAL": now and then; a killed
    #: process loses nothing, a power failure may lose the last commits. "OFF": never.
    synchronous: str = "NORMAL"
    #: How long to wait for other writers before `LogBusy`.
    busy_timeout_ms: int = 30_000
    #: The file may grow to this size; then `LogFull`. None: as far as the disk goes.
    max_file_bytes: int | None = None
    #: Blobs put aside and not used for this long are swept by `clean`.
    unused_blob_ms: int = 3_600_000
    #: What compaction may keep in memory of keys; with more keys it takes more passes.
    compaction_buffer_bytes: int = 128 * 1024 * 1024
    #: Epoch milliseconds.
    clock: Clock = wall_clock_ms
    #: Seconds; by this, holders of leases and members of groups are taken for dead.
    monotonic: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        object.__setattr__(self, "synchronous", self.synchronous.upper())
        if self.synchronous not in _SYNCHRONOUS:
            raise ConfigException(
                f"synchronous must be one of {', '.join(_SYNCHRONOUS)}, not '{self.synchronous}'."
            )
        for name in ("busy_timeout_ms", "unused_blob_ms"):
            if getattr(self, name) < 0:
                raise ConfigException(f"{name} must not be negative: {getattr(self, name)}.")
