"""The exceptions of penstock.

    StreamsException
    ├── TopologyException             the topology is invalid
    ├── InvalidStateStoreException    a store cannot be queried
    │   ├── UnknownStateStoreException
    │   ├── StateStoreNotAvailableException
    │   ├── StateStoreMigratedException
    │   ├── InvalidStateStorePartitionException
    │   ├── StreamsNotStartedException
    │   ├── StreamsRebalancingException
    │   └── StreamsStoppedException
    ├── ProcessingFailedException     a record cannot be processed; has its position
    ├── SerializationException        a serde cannot read bytes or write a value
    ├── NotSentException              the log would reject a record: too large, unknown topic
    ├── WrongSerdeException           the serdes of a node have the wrong types
    ├── ProcessorStateException       a store cannot be read or written
    ├── TaskCorruptedException
    ├── TaskMigratedException
    ├── TaskIdFormatException
    ├── LockException
    ├── MissingSourceTopicException
    ├── MissingInternalTopicsException
    ├── MisconfiguredInternalTopicException
    ├── UnknownTopologyException
    └── ConfigException               a setting is missing or invalid
        └── MissingDependencyException    an optional package is not installed

Invalid arguments of a call raise `ValueError` or `TypeError`.
"""

from __future__ import annotations


class StreamsException(Exception):
    """The base class of all exceptions of penstock."""


class TopologyException(StreamsException):
    """The topology is invalid."""


class ConfigException(StreamsException):
    """A setting is missing or has an invalid value."""


class MissingDependencyException(ConfigException, ImportError):
    """An optional package is not installed. The message names the extra to install."""


class SerializationException(StreamsException):
    """A serde cannot deserialize bytes or serialize a value."""


class NotSentException(StreamsException):
    """The log would reject an output record. Passed to the production exception handler."""


class WrongSerdeException(StreamsException):
    """The serdes of a node do not match its data. Exception handlers are not called."""


class ProcessingFailedException(StreamsException):
    """A record cannot be processed, and the exception handler decided to fail.

    The attributes give its position. `__cause__` is the original exception with its traceback.
    """

    def __init__(
        self, message: str, *, task_id: str | None = None, processor: str | None = None,
        topic: str | None = None, partition: int = -1, offset: int = -1, key: object = None,
    ) -> None:
        super().__init__(message)
        self.task_id = task_id
        self.processor = processor
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.key = key


class ProcessorStateException(StreamsException):
    """A store cannot be read or written."""


class InvalidStateStoreException(StreamsException):
    """A store cannot be queried."""


class UnknownStateStoreException(InvalidStateStoreException):
    """The topology has no store with that name."""


class StateStoreNotAvailableException(InvalidStateStoreException):
    """The store exists but is closed."""


class StateStoreMigratedException(InvalidStateStoreException):
    """The store has moved to another instance. Retry."""


class InvalidStateStorePartitionException(InvalidStateStoreException):
    """The store does not have that partition."""


class StreamsNotStartedException(InvalidStateStoreException):
    """The application has not been started yet."""


class StreamsRebalancingException(InvalidStateStoreException):
    """The application is rebalancing or restoring. Retry."""


class StreamsStoppedException(InvalidStateStoreException):
    """The application has been stopped."""


class TaskCorruptedException(StreamsException):
    """The state of a task is corrupted and must be restored."""


class TaskMigratedException(StreamsException):
    """The task has moved to another instance."""


class TaskIdFormatException(StreamsException):
    """A string is not a valid task id."""


class LockException(StreamsException):
    """The state directory is in use by another process."""


class MissingSourceTopicException(StreamsException):
    """A topic that the topology reads does not exist."""


class MissingInternalTopicsException(StreamsException):
    """Internal topics do not exist."""


class MisconfiguredInternalTopicException(StreamsException):
    """An internal topic has incompatible settings."""


class UnknownTopologyException(StreamsException):
    """No topology has that name."""
