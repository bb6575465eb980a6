"""Errors for classes of Kafka Streams that penstock does not export: what to use in Python."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterable
from types import FrameType

from penstock.suggestions import did_you_mean

_FUNCTION = "a function or a lambda of {}"
_SUPPLIER = "the class, or a function without arguments that creates an instance"
_NOT_IMPLEMENTED = "It is not implemented, see docs/compatibility.md."
_ASSIGNMENT = "It is not needed: Spark assigns tasks to its executors."
_FORMATS = "It is not needed: penstock converts between the formats of stores."


def _use(text: str) -> str:
    return f"In Python, use {text}."


def _all(names: str, hint: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), hint)


#: Java class -> what to do in Python.
HINTS: dict[str, str] = {
    "Consumed": _use("the keywords key=, value=, timestamp=, offset_reset= and name= of "
                     "StreamsBuilder.stream() and table()"),
    "Produced": _use("the keywords key=, value=, partitioner= and name= of KStream.to()"),
    "Grouped": _use("the keywords key=, value= and name= of group_by() and group_by_key()"),
    "Joined": _use("the keywords key=, value=, other_value=, grace= and name= of KStream.join()"),
    "StreamJoined": _use("the keywords key=, value=, other_value=, store_name=, this_store=, "
                         "other_store=, logging= and name= of KStream.join()"),
    "TableJoined": _use("the keywords partitioner=, other_partitioner= and name= of KTable.join()"),
    "Repartitioned": _use("the keywords key=, value=, partitions=, partitioner= and name= of "
                          "KStream.repartition()"),
    "Named": _use("the keyword name= of the method"),
    "KafkaStreams": _use("Streams"),
    "KeyValue": _use("a tuple (key, value)"),
    "CloseOptions": _use("Streams.close(timeout=..., leave_group=...)"),
    "GroupMembershipOperation": _use("Streams.close(leave_group=...)"),
    "StateListener": _use("a function of (new_state, old_state)"),
    "StreamsUncaughtExceptionHandler": _use(_FUNCTION.format("(exception)")),
    "StreamPartitioner": _use(_FUNCTION.format("(topic, key, value, partitions)")),
    "Punctuator": _use(_FUNCTION.format("(timestamp)")),
    "To": _use("ProcessorContext.forward(record, child=...) and Record.with_timestamp()"),
    "ConnectedStoreProvider": _use("an attribute or a method `stores` of the supplier"),
    "Result": _use("penstock.Response, or penstock.handlers.Result"),
    "StrategyType": _use("EmitStrategy"),
    "Transformer": _use("Processor and KStream.process()"),
    # Functions
    **_all("KeyValueMapper Predicate ForeachAction", _use(
        _FUNCTION.format("(key, value), or of the value alone"))),
    **_all("ValueMapper ValueMapperWithKey", _use(
        _FUNCTION.format("the value, or of (key, value)"))),
    **_all("ValueJoiner ValueJoinerWithKey", _use(
        _FUNCTION.format("(left, right) or (key, left, right)"))),
    "Initializer": _use("a function without arguments, for example int or list"),
    "Aggregator": _use(_FUNCTION.format("(key, value, aggregate)")),
    "Merger": _use(_FUNCTION.format("(key, first, second)")),
    "Reducer": _use(_FUNCTION.format("(aggregate, value)")),
    # Processors
    **_all("ProcessorSupplier FixedKeyProcessorSupplier ValueTransformerWithKeySupplier "
           "ValueTransformerSupplier TransformerSupplier", _use(_SUPPLIER)),
    **_all("FixedKeyProcessorContext ProcessingContext", _use("ProcessorContext")),
    "ValueTransformerWithKey": _use("ValueTransformer"),
    "WrappedFixedKeyProcessorSupplier": _use("WrappedProcessorSupplier"),
    "InternalFixedKeyRecordFactory": _use("penstock.testing.fixed_key_record()"),
    # Serdes
    **_all("Serializer Deserializer", _use("Serde, or Serde.of(serializer, deserializer)")),
    **_all("SessionWindowedSerde SessionWindowedSerializer SessionWindowedDeserializer",
           _use("WindowedSerdes.session_windowed()")),
    **_all("TimeWindowedSerde TimeWindowedSerializer TimeWindowedDeserializer",
           _use("WindowedSerdes.time_windowed()")),
    # Options and stores
    **_all("EagerBufferConfig StrictBufferConfig", _use("BufferConfig")),
    **_all("KeyValueIterator WindowStoreIterator VersionedRecordIterator", _use("StoreIterator")),
    **_all("StoreSupplier KeyValueBytesStoreSupplier WindowBytesStoreSupplier "
           "SessionBytesStoreSupplier VersionedBytesStoreSupplier", _use(
               "the suppliers that the methods of Stores return")),
    "InMemoryDslStoreSuppliers": _use("BuiltInDslStoreSuppliers.IN_MEMORY"),
    "RocksDBDslStoreSuppliers": _use("BuiltInDslStoreSuppliers.ROCKS_DB"),
    "VersionedBytesStore": _use("BytesStore and with_rows() of a supplier"),
    "StateStoreContext": _use("penstock.stores.StoreContext"),
    **_all("StateRestoreCallback BatchingStateRestoreCallback", _use("StateStore.restore()")),
    "CommitCallback": _use("StateStore.commit()"),
    "RocksDBConfigSetter": "It is not needed: persistent stores are in LMDB, not in RocksDB.",
    **_all("HeadersBytesStore HeadersBytesStoreSupplier TimestampedBytesStore", _FORMATS),
    # Clients and descriptions
    **_all("KafkaProducer Producer", _use("penstock.clients.Producer")),
    **_all("KafkaConsumer Consumer", _use("penstock.clients.Consumer")),
    **_all("Admin AdminClient KafkaAdminClient", _use("penstock.clients.AdminClient")),
    **_all("Node Source Sink Subtopology GlobalStore", _use(
        "the result of Topology.describe(); its classes are in penstock.topology.describe")),
    **_all("CapturedForward CapturedPunctuator MockProcessorContext TestInputTopic "
           "TestOutputTopic TestRecord TopologyTestDriver", "It is in penstock.testing."),
    # Classes without a counterpart
    **_all("KeyValueStoreType SessionStoreType TimestampedKeyValueStoreType "
           "TimestampedWindowStoreType WindowStoreType", _use(
               "the types that the methods of QueryableStoreTypes return")),
    "InStore": _use("StateQueryRequest.in_store()"),
    **_all("ApplicationState AssignedTask AssignmentConfigs AssignmentError GroupProtocol "
           "KafkaStreamsAssignment KafkaStreamsState MoveStandbyTaskPredicate ProcessId "
           "RackAwareOptimizationParams StickyTaskAssignor TaskAssignment TaskAssignmentUtils "
           "TaskAssignor TaskInfo TaskTopicPartition Type", _ASSIGNMENT),
    **_all("ClientInstanceIds InternalTopicsAlreadySetupException KafkaClientSupplier "
           "LockException MissingInternalTopicsException TaskAssignmentException TaskConfig "
           "UnknownTopologyException", _NOT_IMPLEMENTED),
    "InternalConfig": "It is internal to Kafka.",
}


def missing_name_error(
    name: str, exported: Iterable[str], caller: FrameType
) -> AttributeError | ImportError:
    """Return the error for a name that penstock does not export.

    It is an `ImportError` for `from penstock import X`: Python replaces an `AttributeError` there
    by an `ImportError` without the hint. `caller` is the frame that uses the name.
    """
    hint = HINTS.get(name)
    advice = did_you_mean(name, exported) if hint is None else f" {hint}"
    if _imports(caller):
        return ImportError(
            f"cannot import name '{name}' from 'penstock'.{advice}", name="penstock",
            path=sys.modules["penstock"].__file__,
        )
    return AttributeError(
        f"module 'penstock' has no attribute '{name}'.{advice}", name=name,
        obj=sys.modules["penstock"],
    )


def _imports(frame: FrameType) -> bool:
    """Return whether a frame executes the second part of `from module import name`."""
    return frame.f_lasti >= 0 and (
        dis.opname[frame.f_code.co_code[frame.f_lasti]] == "IMPORT_FROM"
    )
