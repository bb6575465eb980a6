"""Options of the embedded log. They belong to a process; the file does not store them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.clock import Clock, wall_clock_ms
from penstock.errors import ConfigException

_SYNCHRONOUS = ("OFF", "NORMAL", "FULL")


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddedOptions:
    """The options of one `EmbeddedLog`."""

    #: Whether to create a file that does not exist.
    create: bool = True
    read_only: bool = False
    #: When to force data to the disk. "FULL": at every commit. "NORMAL": at checkpoints; a killed
    #: process loses nothing, a power failure may lose the last commits. "OFF": never.
    synchronous: str = "NORMAL"
    #: How long to wait for other writers before `LogBusy`.
    busy_timeout_ms: int = 30_000
    #: The largest size of the file; `LogFull` beyond it. None: no limit but the disk.
    max_file_bytes: int | None = None
    #: `clean` deletes staged records that are older than this.
    unused_blob_ms: int = 3_600_000
    #: The memory for keys in one compaction pass. More keys take more passes.
    compaction_buffer_bytes: int = 128 * 1024 * 1024
    #: Returns epoch milliseconds.
    clock: Clock = wall_clock_ms
    #: Returns seconds. Measures the silence of lease holders and group members.
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
