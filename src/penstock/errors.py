"""Everything penstock raises on purpose.

    StreamsException
    ├── TopologyException             a topology that cannot be built
    ├── InvalidStateStoreException    a store that cannot be asked
    │   ├── UnknownStateStoreException
    │   ├── StateStoreNotAvailableException
    │   ├── StateStoreMigratedException
    │   ├── InvalidStateStorePartitionException
    │   ├── StreamsNotStartedException
    │   ├── StreamsRebalancingException
    │   └── StreamsStoppedException
    ├── ProcessingFailedException     a record that could not be processed, and where
    ├── SerializationException        bytes and values that do not fit together
    ├── NotSentException              a result that the log would refuse: too large, no such topic
    ├── WrongSerdeException           a node whose serdes are not made for what it gets
    ├── ProcessorStateException       a store that cannot be read or written
    ├── TaskCorruptedException
    ├── TaskMigratedException
    ├── TaskIdFormatException
    ├── LockException
    ├── MissingSourceTopicException
    ├── MissingInternalTopicsException
    ├── MisconfiguredInternalTopicException
    ├── UnknownTopologyException
    └── ConfigException               a setting that is missing or wrong
        └── MissingDependencyException    an optional package that is not installed

A wrong argument of a call is Python's own `ValueError` or `TypeError`.
"""

from __future__ import annotations


class StreamsException(Exception):
    """The root of all."""


class TopologyException(StreamsException):
    """The topology cannot be built as described."""


class ConfigException(StreamsException):
    """A setting is missing or has a value that cannot be."""


class MissingDependencyException(ConfigException, ImportError):
    """An optional package is not installed. The message names the extra to install."""


class SerializationException(StreamsException):
    """Bytes that cannot be read, or a value that cannot be written, by a serde."""


class NotSentException(StreamsException):
    """A result that the log would refuse; the production handler is asked about it."""


class WrongSerdeException(StreamsException):
    """A node cannot work at all with the serdes it has: the handler of the node is not asked."""


class ProcessingFailedException(StreamsException):
    """A record could not be processed and the handler (or its absence) said to fail.

    Carries where it happened; `__cause__` is what was raised there, with the user's traceback.
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
    """A store could not be read or written."""


class InvalidStateStoreException(StreamsException):
    """A store cannot be asked as requested."""


class UnknownStateStoreException(InvalidStateStoreException):
    """No store of that name is in the topology."""


class StateStoreNotAvailableException(InvalidStateStoreException):
    """The store exists but is closed."""


class StateStoreMigratedException(InvalidStateStoreException):
    """The store is now elsewhere; ask again."""


class InvalidStateStorePartitionException(InvalidStateStoreException):
    """The store has no such partition."""


class StreamsNotStartedException(InvalidStateStoreException):
    """The application has not been started yet."""


class StreamsRebalancingException(InvalidStateStoreException):
    """The application is taking over or restoring; ask again."""


class StreamsStoppedException(InvalidStateStoreException):
    """The application has been stopped."""


class TaskCorruptedException(StreamsException):
    """The state of a task cannot be trusted and is to be restored."""


class TaskMigratedException(StreamsException):
    """The task belongs to another instance now."""


class TaskIdFormatException(StreamsException):
    """A text that is no task id."""


class LockException(StreamsException):
    """The state directory is in use by another process."""


class MissingSourceTopicException(StreamsException):
    """A topic that the topology reads does not exist."""


class MissingInternalTopicsException(StreamsException):
    """Internal topics that should be there are not."""


class MisconfiguredInternalTopicException(StreamsException):
    """An internal topic exists with settings that do not fit."""


class UnknownTopologyException(StreamsException):
    """No topology of that name."""
