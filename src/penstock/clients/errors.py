"""Exceptions and error codes of the clients, with the names of confluent-kafka.

    StreamsException
    ├── ConfigException               a setting is missing or invalid (penstock.errors)
    └── KafkaException                has a KafkaError as its first argument
        ├── ConsumeError              a message cannot be returned; has `kafka_message`
        │   ├── KeyDeserializationError
        │   └── ValueDeserializationError
        ├── ProduceError
        │   ├── KeySerializationError
        │   └── ValueSerializationError
        └── WakeupException           `Consumer.wakeup` was called

A full producer buffer raises Python's `BufferError`.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Self

from penstock.errors import StreamsException
from penstock.log.errors import (
    Fenced,
    GroupNotEmpty,
    InvalidRecord,
    InvalidTopic,
    LogBusy,
    LogError,
    LogReadOnly,
    LogUnavailable,
    OffsetOutOfRange,
    RecordTooLarge,
    StagedRecordsGone,
    TopicExists,
    UnknownTopic,
)

if TYPE_CHECKING:
    from penstock.clients.types import Message


class KafkaError:
    """An error code of librdkafka with a message and flags."""

    NO_ERROR = 0
    UNKNOWN = -1
    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PART = 3
    REQUEST_TIMED_OUT = 7
    MSG_SIZE_TOO_LARGE = 10
    TOPIC_EXCEPTION = 17
    ILLEGAL_GENERATION = 22
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    REBALANCE_IN_PROGRESS = 27
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    INVALID_TXN_STATE = 48
    KAFKA_STORAGE_ERROR = 56
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FENCED_INSTANCE_ID = 82
    INVALID_RECORD = 87
    PRODUCER_FENCED = 90
    _FAIL = -196
    _MSG_TIMED_OUT = -192
    _PARTITION_EOF = -191
    _UNKNOWN_PARTITION = -190
    _FS = -189
    _UNKNOWN_TOPIC = -188
    _INVALID_ARG = -186
    _TIMED_OUT = -185
    _QUEUE_FULL = -184
    _UNKNOWN_GROUP = -179
    _ASSIGN_PARTITIONS = -175
    _REVOKE_PARTITIONS = -174
    _CONFLICT = -173
    _STATE = -172
    _NO_OFFSET = -168
    _INTR = -163
    _KEY_SERIALIZATION = -162
    _VALUE_SERIALIZATION = -161
    _KEY_DESERIALIZATION = -160
    _VALUE_DESERIALIZATION = -159
    _READ_ONLY = -157
    _PURGE_QUEUE = -152
    _FATAL = -150
    _MAX_POLL_EXCEEDED = -147
    _NOT_CONFIGURED = -145
    _FENCED = -144
    _ASSIGNMENT_LOST = -142
    _AUTO_OFFSET_RESET = -140

    def __init__(
        self,
        code: int,
        reason: builtins.str | None = None,
        fatal: bool = False,
        retriable: bool = False,
        txn_requires_abort: bool = False,
    ) -> None:
        self._code = code
        self._reason = reason
        self._fatal = fatal
        self._retriable = retriable
        self._txn_requires_abort = txn_requires_abort

    def code(self) -> int:
        """Return the code, one of the constants of this class."""
        return self._code

    def name(self) -> builtins.str:
        """Return the name of the code."""
        return _NAMES.get(self._code, f"ERR_{self._code}")

    def str(self) -> builtins.str:
        """Return the message for users."""
        return self._reason or self.name()

    def fatal(self) -> bool:
        """Return whether the client can no longer be used."""
        return self._fatal

    def retriable(self) -> bool:
        """Return whether a retry of the call may succeed."""
        return self._retriable

    def txn_requires_abort(self) -> bool:
        """Return whether the transaction must be aborted."""
        return self._txn_requires_abort

    def with_abort_required(self) -> KafkaError:
        """Return this error with `txn_requires_abort` set and `retriable` cleared."""
        return KafkaError(self._code, self._reason, self._fatal, False, True)

    def __str__(self) -> builtins.str:
        return f"{self.name()}: {self.str()}"

    def __repr__(self) -> builtins.str:
        return f"KafkaError({self})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, KafkaError):
            return self._code == other._code
        return isinstance(other, int) and self._code == other

    def __hash__(self) -> int:
        return hash(self._code)


_NAMES = {
    code: name for name, code in vars(KafkaError).items()
    if isinstance(code, int) and name.lstrip("_").isupper()
}


class KafkaException(StreamsException):
    """An exception whose first argument is a `KafkaError`."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)

    @property
    def error(self) -> KafkaError:
        """The error, or one with the code UNKNOWN if there is none."""
        first = self.args[0] if self.args else None
        return first if isinstance(first, KafkaError) else KafkaError(KafkaError.UNKNOWN)


class ConsumeError(KafkaException):
    """A message cannot be returned to the program. The consumer's position is after it."""

    def __init__(self, error: KafkaError, message: Message | None = None) -> None:
        super().__init__(error)
        self.kafka_message = message

    def caused_by(self, cause: Exception) -> Self:
        """Set the cause and return this exception.

        Args:
            cause: The original error.

        Returns:
            This exception.
        """
        self.__cause__ = cause
        return self


class KeyDeserializationError(ConsumeError):
    """The deserializer cannot read the bytes of the key."""


class ValueDeserializationError(ConsumeError):
    """The deserializer cannot read the bytes of the value."""


class ProduceError(KafkaException):
    """`produce` rejected a record."""


class KeySerializationError(ProduceError):
    """The serializer cannot write the key."""


class ValueSerializationError(ProduceError):
    """The serializer cannot write the value."""


class WakeupException(KafkaException):
    """`Consumer.wakeup` was called before or during this call."""

    def __init__(self) -> None:
        super().__init__(KafkaError(KafkaError._INTR, "The consumer was woken up."))


def kafka_exception(code: int, reason: str, *, fatal: bool = False) -> KafkaException:
    """Return a `KafkaException` with a new `KafkaError`."""
    return KafkaException(KafkaError(code, reason, fatal))


#: The first match is used, so subclasses come before their base classes.
_CODES: tuple[tuple[type[LogError], int], ...] = (
    (UnknownTopic, KafkaError.UNKNOWN_TOPIC_OR_PART),
    (TopicExists, KafkaError.TOPIC_ALREADY_EXISTS),
    (InvalidTopic, KafkaError.INVALID_REQUEST),
    (RecordTooLarge, KafkaError.MSG_SIZE_TOO_LARGE),
    (InvalidRecord, KafkaError.INVALID_RECORD),
    (OffsetOutOfRange, KafkaError.OFFSET_OUT_OF_RANGE),
    (Fenced, KafkaError._FENCED),
    (GroupNotEmpty, KafkaError.NON_EMPTY_GROUP),
    (StagedRecordsGone, KafkaError._FAIL),
    (LogBusy, KafkaError.REQUEST_TIMED_OUT),
    (LogReadOnly, KafkaError._READ_ONLY),
    (LogUnavailable, KafkaError.KAFKA_STORAGE_ERROR),
)


def to_kafka_error(error: LogError) -> KafkaError:
    """Translate an error of the log."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return KafkaError(code, str(error), retriable=isinstance(error, LogBusy))
    return KafkaError(KafkaError.UNKNOWN, str(error))


def to_kafka_exception(error: LogError) -> KafkaException:
    """Translate an error of the log into the exception that the clients raise."""
    return KafkaException(to_kafka_error(error))
