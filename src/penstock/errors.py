"""The exceptions of penstock.

    StreamsException
    ├── TopologyException             the topology is invalid
    ├── InvalidStateStoreException    a store cannot be queried
    │   ├── UnknownStateStoreException        the topology has no store with that name
    │   ├── InvalidStateStorePartitionException   the store has no such partition
    │   ├── StateStoreNotAvailableException   the store cannot be queried, and will not be
    │   ├── StateStoreMigratedException       the store is not on this instance any more
    │   ├── StreamsNotStartedException        the application is not started
    │   ├── StreamsRebalancingException       the stores are being restored; retry
    │   └── StreamsStoppedException           the application has stopped
    ├── ProcessingFailedException     a record cannot be processed; has its position
    │   └── RetryRequestedException   the production handler returned RETRY
    ├── SerializationException        a serde cannot read bytes or write a value
    │   ├── StoreSerdeException       the serde of a store
    │   └── TopicSerdeException       the serde of a topic that the application writes
    ├── SchemaRegistryException       the schema registry cannot be reached, or refuses a schema
    ├── NotSentException              the log would reject a record: too large, unknown topic
    ├── WrongSerdeException           the serdes of a node have the wrong types
    ├── ProcessorStateException       a store cannot be read or written
    ├── TaskCorruptedException        local state is damaged and is restored
    ├── TaskMigratedException         another instance has continued the application
    ├── TaskIdFormatException         a string is not a task id
    ├── MissingSourceTopicException   a topic that the topology reads does not exist
    ├── MisconfiguredInternalTopicException
    └── ConfigException               a setting is missing or invalid
        └── MissingDependencyException    an optional package is not installed

Invalid arguments of a call raise `ValueError` or `TypeError`.
"""

from __future__ import annotations


class StreamsException(Exception):
    """The base class of all exceptions of penstock."""


class TopologyException(StreamsException):
    """The topology is invalid."""

    #: The line of the program that added the step, if the error was found later: "file, line N".
    location: str | None = None


class ConfigException(StreamsException):
    """A setting is missing or has an invalid value."""


class MissingDependencyException(ConfigException, ImportError):
    """An optional package is not installed. The message names the extra to install."""


class SerializationException(StreamsException):
    """A serde cannot deserialize bytes or serialize a value."""


class StoreSerdeException(SerializationException):
    """The serde of a store cannot deserialize a row or serialize a key or a value.

    The usual reason is another serde or schema than the one that wrote the rows. Skipping records
    is no remedy: it would skip every record that needs the row.
    """


class TopicSerdeException(SerializationException):
    """The serde of a topic does not match the data that the application writes to it.

    Skipping records is no remedy: the records are valid.
    """


class SchemaRegistryException(StreamsException):
    """The schema registry cannot be reached, or refuses a schema.

    The record may be valid, so exception handlers are not called.
    """


class NotSentException(StreamsException):
    """The log would reject an output record. Passed to the production exception handler.

    `retriable`: the error may pass, for example because the topic is created later.
    """

    def __init__(self, message: str, *, retriable: bool = False) -> None:
        super().__init__(message)
        self.retriable = retriable


class WrongSerdeException(StreamsException):
    """The serdes of a node do not match its data: a ClassCastException of Kafka Streams.

    The error belongs to the parent of the node, which calls the processing exception handler.
    """


class ProcessingFailedException(StreamsException):
    """A record cannot be processed, and the exception handler decided to fail.

    The attributes give its position. `__cause__` is the original exception with its traceback.
    `handler_setting` is the setting with which such records are skipped, None if skipping them is
    no remedy. `store` is the global store that the record was to update, None for other records.
    """

    def __init__(
        self, message: str, *, task_id: str | None = None, processor: str | None = None,
        topic: str | None = None, partition: int = -1, offset: int = -1, key: object = None,
        handler_setting: str | None = None, store: str | None = None,
    ) -> None:
        super().__init__(message)
        self.store = store
        self.task_id = task_id
        self.processor = processor
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.key = key
        self.handler_setting = handler_setting


class RetryRequestedException(ProcessingFailedException):
    """The production exception handler requested to process the batch again."""


class ProcessorStateException(StreamsException):
    """A store cannot be read or written."""


class InvalidStateStoreException(StreamsException):
    """A store cannot be queried."""


class UnknownStateStoreException(InvalidStateStoreException):
    """The topology has no store with that name."""


class InvalidStateStorePartitionException(InvalidStateStoreException):
    """The store does not have that partition."""


class StateStoreNotAvailableException(InvalidStateStoreException):
    """The store cannot be queried in this process, now or later. Query another instance."""


class StateStoreMigratedException(InvalidStateStoreException):
    """The store has moved: this instance does not run its task any more."""


class StreamsNotStartedException(InvalidStateStoreException):
    """The application is not started. Call `start` and query again."""


class StreamsRebalancingException(InvalidStateStoreException):
    """The stores are being restored, or no instance runs the application. Query again later."""


class StreamsStoppedException(InvalidStateStoreException):
    """The application has stopped. This instance serves no more queries."""


class TaskCorruptedException(StreamsException):
    """The state of a task is corrupted and must be restored."""


class TaskMigratedException(StreamsException):
    """The task has moved to another instance."""


class TaskIdFormatException(StreamsException):
    """A string is not a valid task id."""


class MissingSourceTopicException(StreamsException):
    """A topic that the topology reads does not exist."""


class MisconfiguredInternalTopicException(StreamsException):
    """An internal topic has incompatible settings."""
