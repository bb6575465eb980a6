"""The settings of a topic, with Kafka's names, defaults and string values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.log.errors import InvalidTopic

DAY_MS = 86_400_000
_LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NEVER = 2**63 - 1

#: Numbers: the default and the minimum.
_NUMBERS: Mapping[str, tuple[int, int]] = {
    "retention.ms": (7 * DAY_MS, -1),
    "retention.bytes": (-1, -1),
    "max.message.bytes": (1_048_588, 0),
    "delete.retention.ms": (DAY_MS, 0),
    "min.compaction.lag.ms": (0, 0),
    "message.timestamp.before.max.ms": (_NEVER, 0),
    "message.timestamp.after.max.ms": (3_600_000, 0),
}
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "cleanup.policy": ("delete", "compact", "compact,delete"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
}
_RATIO = "min.cleanable.dirty.ratio"
#: Accepted and shown, because scripts set them. They have no effect in the embedded log.
WITHOUT_EFFECT = frozenset((
    "compression.type", "compression.gzip.level", "compression.lz4.level",
    "compression.zstd.level", "file.delete.delay.ms", "flush.messages", "flush.ms",
    "follower.replication.throttled.replicas", "index.interval.bytes",
    "leader.replication.throttled.replicas", "local.retention.bytes", "local.retention.ms",
    "max.compaction.lag.ms", "min.insync.replicas", "preallocate", "remote.storage.enable",
    "segment.bytes", "segment.index.bytes", "segment.jitter.ms", "segment.ms",
    "unclean.leader.election.enable",
))

DEFAULTS: Mapping[str, str] = {
    **{name: str(default) for name, (default, _) in _NUMBERS.items()},
    **{name: choices[0] for name, choices in _CHOICES.items()},
    _RATIO: "0.5",
}


def check_topic_name(name: str) -> None:
    """Raise `InvalidTopic` for a name that Kafka would reject, too."""
    if not _LEGAL_NAME.fullmatch(name) or name in {".", ".."}:
        raise InvalidTopic(
            f"'{name}' is not a legal topic name. A name has 1 to 249 letters, digits, '.', '_' "
            "and '-', and is not '.' or '..'."
        )


def check_partitions(partitions: int) -> None:
    """Raise `InvalidTopic` for a number of partitions below one."""
    if partitions < 1:
        raise InvalidTopic(f"A topic must have at least 1 partition, not {partitions}.")


def checked_config(config: Mapping[str, object]) -> dict[str, str]:
    """Return settings as strings; `InvalidTopic` for an unknown name or an illegal value."""
    return {name: _check(name, str(value).strip()) for name, value in config.items()}


def _check(name: str, text: str) -> str:
    if name in _NUMBERS:
        minimum = _NUMBERS[name][1]
        if not re.fullmatch(r"-?\d+", text) or int(text) < minimum:
            raise InvalidTopic(f"{name} must be a number of {minimum} or more, not '{text}'.")
    elif name == "cleanup.policy":
        policies = sorted({part.strip() for part in text.split(",") if part.strip()})
        text = ",".join(policies)
        _check_choice(name, text)
    elif name in _CHOICES:
        _check_choice(name, text)
    elif name == _RATIO:
        if not re.fullmatch(r"0(\.\d*)?|1(\.0*)?|\.\d+", text):
            raise InvalidTopic(f"{name} must be between 0 and 1, not '{text}'.")
    else:
        check_setting_name(name)
    return text


def check_setting_name(name: str) -> None:
    """Raise `InvalidTopic` for an unknown setting."""
    if name not in DEFAULTS and name not in WITHOUT_EFFECT:
        known = ", ".join(sorted({*DEFAULTS, *WITHOUT_EFFECT}))
        raise InvalidTopic(f"Unknown topic setting '{name}'. Settings: {known}.")


def _check_choice(name: str, text: str) -> None:
    if text not in _CHOICES[name]:
        listed = ", ".join(f"'{choice}'" for choice in _CHOICES[name])
        raise InvalidTopic(f"{name} must be one of {listed}, not '{text}'.")


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The parsed settings that a log uses. -1 means no limit, as in Kafka."""

    compact: bool
    delete: bool
    retention_ms: int
    retention_bytes: int
    max_message_bytes: int
    delete_retention_ms: int
    min_compaction_lag_ms: int
    dirty_ratio: float
    append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int

    @classmethod
    def of(cls, config: Mapping[str, str]) -> TopicSettings:
        """Parse checked settings, with defaults for the others."""
        settings = {**DEFAULTS, **config}
        policies = settings["cleanup.policy"].split(",")
        return cls(
            compact="compact" in policies,
            delete="delete" in policies,
            retention_ms=int(settings["retention.ms"]),
            retention_bytes=int(settings["retention.bytes"]),
            max_message_bytes=int(settings["max.message.bytes"]),
            delete_retention_ms=int(settings["delete.retention.ms"]),
            min_compaction_lag_ms=int(settings["min.compaction.lag.ms"]),
            dirty_ratio=float(settings[_RATIO]),
            append_time=settings["message.timestamp.type"] == "LogAppendTime",
            timestamp_before_max_ms=int(settings["message.timestamp.before.max.ms"]),
            timestamp_after_max_ms=int(settings["message.timestamp.after.max.ms"]),
        )
