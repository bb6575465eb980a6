"""penstock: Kafka Streams for Python, run on Apache Spark.

Reading order, along the way of a record:

    dsl/         what the user says: StreamsBuilder, KStream, KTable
    topology/    what will run: the plan, its rules, the topology, its description
    task/        one sub-topology over one partition, record by record
    processors/  what each operator does
    serdes/      keys and values as bytes
    stores/      where rows are kept, in four layers
    native/      what every record passes, in C; each piece has a twin above
    testing/     TopologyTestDriver
    log/         where topics are: the contract of a log; embedded in a file, or Kafka
    clients/     Producer, Consumer and AdminClient over a log
    engine/      a topology on a log: batches are planned, run on Spark, committed
    broker/      a real Kafka on this machine, for trying things out and for tests
    app.py       Streams: an application and its life
    cli/         the command line
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.app import Streams
    from penstock.config import StreamsConfig, TopologyConfig
    from penstock.dsl.branched import BranchedKStream
    from penstock.dsl.builder import StreamsBuilder
    from penstock.dsl.cogrouped import (
        CogroupedKStream,
        SessionWindowedCogroupedKStream,
        TimeWindowedCogroupedKStream,
    )
    from penstock.dsl.grouped import KGroupedStream, KGroupedTable
    from penstock.dsl.options import (
        Branched,
        BufferConfig,
        Materialized,
        Printed,
        StoreType,
        Suppressed,
    )
    from penstock.dsl.stream import KStream
    from penstock.dsl.table import GlobalKTable, KTable
    from penstock.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream
    from penstock.engine.exception_handler import StreamThreadExceptionResponse
    from penstock.engine.lifecycle import State
    from penstock.engine.observe.metadata import TaskMetadata, ThreadMetadata
    from penstock.engine.observe.metrics import MetricName
    from penstock.engine.observe.restores import StateRestoreListener
    from penstock.engine.standby.updates import StandbyUpdateListener, SuspendReason
    from penstock.errors import (
        ConfigException,
        InvalidStateStoreException,
        ProcessingFailedException,
        ProcessorStateException,
        SerializationException,
        StreamsException,
        TopologyException,
        UnknownStateStoreException,
    )
    from penstock.handlers import (
        DefaultProductionExceptionHandler,
        DeserializationExceptionHandler,
        ErrorHandlerContext,
        LogAndContinueExceptionHandler,
        LogAndContinueProcessingExceptionHandler,
        LogAndContinueProductionExceptionHandler,
        LogAndFailExceptionHandler,
        LogAndFailProcessingExceptionHandler,
        ProcessingExceptionHandler,
        ProducedRecord,
        ProductionExceptionHandler,
        Response,
        SerializationExceptionOrigin,
    )
    from penstock.processors.api import (
        Cancellable,
        ContextualFixedKeyProcessor,
        ContextualProcessor,
        FixedKeyProcessor,
        Processor,
        ProcessorContext,
        ProcessorWrapper,
        PunctuationType,
        ValueTransformer,
    )
    from penstock.record import (
        Change,
        FixedKeyRecord,
        Headers,
        Record,
        RecordContext,
        RecordMetadata,
        TaskId,
        ValueAndTimestamp,
    )
    from penstock.serdes.base import Serde
    from penstock.serdes.builtin import Serdes
    from penstock.serdes.windowed import WindowedSerdes
    from penstock.stores.api.builder import StoreBuilder
    from penstock.stores.api.dsl_suppliers import (
        BuiltInDslStoreSuppliers,
        DslKeyValueParams,
        DslSessionParams,
        DslStoreFormat,
        DslStoreSuppliers,
        DslWindowParams,
    )
    from penstock.stores.api.iterators import StoreIterator
    from penstock.stores.api.store import StateStore
    from penstock.stores.api.stores import Stores
    from penstock.stores.api.values import (
        AggregationWithHeaders,
        ValueTimestampHeaders,
        VersionedRecord,
    )
    from penstock.stores.typed.key_value import (
        KeyValueStore,
        TimestampedKeyValueStore,
        TimestampedKeyValueStoreWithHeaders,
    )
    from penstock.stores.typed.session import SessionStore, SessionStoreWithHeaders
    from penstock.stores.typed.versioned import VersionedKeyValueStore
    from penstock.stores.typed.window import (
        TimestampedWindowStore,
        TimestampedWindowStoreWithHeaders,
        WindowStore,
    )
    from penstock.timestamps import (
        ConsumedRecord,
        FailOnInvalidTimestamp,
        LogAndSkipOnInvalidTimestamp,
        TimestampExtractor,
        UsePartitionTimeOnInvalidTimestamp,
        WallclockTimestampExtractor,
    )
    from penstock.topology.describe import TopologyDescription
    from penstock.topology.nodes import Partitioner, TopicNameExtractor
    from penstock.topology.offset_reset import AutoOffsetReset
    from penstock.topology.topology import Topology
    from penstock.windows import (
        EmitStrategy,
        JoinWindows,
        SessionWindow,
        SessionWindows,
        SlidingWindows,
        TimeWindows,
        UnlimitedWindows,
        Window,
        Windowed,
        Windows,
    )

#: Where the public names live. They are imported when they are first asked for, so that whoever
#: needs little of the package, the command line for one, starts quickly.
_HOMES = {
    "penstock.app": ("Streams",),
    "penstock.config": ("StreamsConfig", "TopologyConfig"),
    "penstock.dsl.branched": ("BranchedKStream",),
    "penstock.dsl.builder": ("StreamsBuilder",),
    "penstock.dsl.cogrouped": (
        "CogroupedKStream", "SessionWindowedCogroupedKStream", "TimeWindowedCogroupedKStream",
    ),
    "penstock.dsl.grouped": ("KGroupedStream", "KGroupedTable"),
    "penstock.dsl.options": (
        "Branched", "BufferConfig", "Materialized", "Printed", "StoreType", "Suppressed",
    ),
    "penstock.dsl.stream": ("KStream",),
    "penstock.dsl.table": ("GlobalKTable", "KTable"),
    "penstock.dsl.windowed": ("SessionWindowedKStream", "TimeWindowedKStream"),
    "penstock.engine.observe.metadata": ("TaskMetadata", "ThreadMetadata"),
    "penstock.engine.observe.metrics": ("MetricName",),
    "penstock.engine.observe.restores": ("StateRestoreListener",),
    "penstock.engine.standby.updates": ("StandbyUpdateListener", "SuspendReason"),
    "penstock.engine.lifecycle": ("State",),
    "penstock.engine.exception_handler": ("StreamThreadExceptionResponse",),
    "penstock.errors": (
        "ConfigException", "InvalidStateStoreException", "ProcessingFailedException",
        "ProcessorStateException", "SerializationException", "StreamsException",
        "TopologyException", "UnknownStateStoreException",
    ),
    "penstock.handlers": (
        "DefaultProductionExceptionHandler", "DeserializationExceptionHandler",
        "ErrorHandlerContext", "LogAndContinueExceptionHandler",
        "LogAndContinueProcessingExceptionHandler", "LogAndContinueProductionExceptionHandler",
        "LogAndFailExceptionHandler", "LogAndFailProcessingExceptionHandler",
        "ProcessingExceptionHandler", "ProducedRecord", "ProductionExceptionHandler", "Response",
        "SerializationExceptionOrigin",
    ),
    "penstock.processors.api": (
        "Cancellable", "ContextualFixedKeyProcessor", "ContextualProcessor", "FixedKeyProcessor",
        "Processor", "ProcessorContext", "ProcessorWrapper", "PunctuationType",
        "ValueTransformer",
    ),
    "penstock.record": (
        "Change", "FixedKeyRecord", "Headers", "Record", "RecordContext", "RecordMetadata",
        "TaskId", "ValueAndTimestamp",
    ),
    "penstock.serdes.base": ("Serde",),
    "penstock.serdes.builtin": ("Serdes",),
    "penstock.stores.api.store": ("StateStore",),
    "penstock.stores.api.builder": ("StoreBuilder",),
    "penstock.stores.api.dsl_suppliers": (
        "BuiltInDslStoreSuppliers", "DslKeyValueParams", "DslSessionParams", "DslStoreFormat",
        "DslStoreSuppliers", "DslWindowParams",
    ),
    "penstock.stores.api.iterators": ("StoreIterator",),
    "penstock.stores.typed.key_value": (
        "KeyValueStore", "TimestampedKeyValueStore", "TimestampedKeyValueStoreWithHeaders",
    ),
    "penstock.stores.typed.session": ("SessionStore", "SessionStoreWithHeaders"),
    "penstock.stores.api.stores": ("Stores",),
    "penstock.stores.api.values": (
        "AggregationWithHeaders", "ValueTimestampHeaders", "VersionedRecord",
    ),
    "penstock.stores.typed.versioned": ("VersionedKeyValueStore",),
    "penstock.stores.typed.window": (
        "TimestampedWindowStore", "TimestampedWindowStoreWithHeaders", "WindowStore",
    ),
    "penstock.timestamps": (
        "ConsumedRecord", "FailOnInvalidTimestamp", "LogAndSkipOnInvalidTimestamp",
        "TimestampExtractor", "UsePartitionTimeOnInvalidTimestamp", "WallclockTimestampExtractor",
    ),
    "penstock.topology.describe": ("TopologyDescription",),
    "penstock.topology.nodes": ("Partitioner", "TopicNameExtractor"),
    "penstock.topology.offset_reset": ("AutoOffsetReset",),
    "penstock.topology.topology": ("Topology",),
    "penstock.serdes.windowed": ("WindowedSerdes",),
    "penstock.windows": (
        "EmitStrategy", "JoinWindows", "SessionWindow", "SessionWindows", "SlidingWindows",
        "TimeWindows", "UnlimitedWindows", "Window", "Windowed", "Windows",
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})


__all__ = [
    "AggregationWithHeaders",
    "AutoOffsetReset",
    "Branched",
    "BranchedKStream",
    "BufferConfig",
    "BuiltInDslStoreSuppliers",
    "Cancellable",
    "Change",
    "CogroupedKStream",
    "ConfigException",
    "ConsumedRecord",
    "ContextualFixedKeyProcessor",
    "ContextualProcessor",
    "DefaultProductionExceptionHandler",
    "DeserializationExceptionHandler",
    "DslKeyValueParams",
    "DslSessionParams",
    "DslStoreFormat",
    "DslStoreSuppliers",
    "DslWindowParams",
    "EmitStrategy",
    "ErrorHandlerContext",
    "FailOnInvalidTimestamp",
    "FixedKeyProcessor",
    "FixedKeyRecord",
    "GlobalKTable",
    "Headers",
    "InvalidStateStoreException",
    "JoinWindows",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "KeyValueStore",
    "LogAndContinueExceptionHandler",
    "LogAndContinueProcessingExceptionHandler",
    "LogAndContinueProductionExceptionHandler",
    "LogAndFailExceptionHandler",
    "LogAndFailProcessingExceptionHandler",
    "LogAndSkipOnInvalidTimestamp",
    "Materialized",
    "MetricName",
    "Partitioner",
    "Printed",
    "ProcessingExceptionHandler",
    "ProcessingFailedException",
    "Processor",
    "ProcessorContext",
    "ProcessorStateException",
    "ProcessorWrapper",
    "ProducedRecord",
    "ProductionExceptionHandler",
    "PunctuationType",
    "Record",
    "RecordContext",
    "RecordMetadata",
    "Response",
    "Serde",
    "Serdes",
    "SerializationException",
    "SerializationExceptionOrigin",
    "SessionStore",
    "SessionStoreWithHeaders",
    "SessionWindow",
    "SessionWindowedCogroupedKStream",
    "SessionWindowedKStream",
    "SessionWindows",
    "SlidingWindows",
    "StandbyUpdateListener",
    "State",
    "StateRestoreListener",
    "StateStore",
    "StoreBuilder",
    "StoreIterator",
    "StoreType",
    "Stores",
    "StreamThreadExceptionResponse",
    "Streams",
    "StreamsBuilder",
    "StreamsConfig",
    "StreamsException",
    "Suppressed",
    "SuspendReason",
    "TaskId",
    "TaskMetadata",
    "ThreadMetadata",
    "TimeWindowedCogroupedKStream",
    "TimeWindowedKStream",
    "TimeWindows",
    "TimestampExtractor",
    "TimestampedKeyValueStore",
    "TimestampedKeyValueStoreWithHeaders",
    "TimestampedWindowStore",
    "TimestampedWindowStoreWithHeaders",
    "TopicNameExtractor",
    "Topology",
    "TopologyConfig",
    "TopologyDescription",
    "TopologyException",
    "UnknownStateStoreException",
    "UnlimitedWindows",
    "UsePartitionTimeOnInvalidTimestamp",
    "ValueAndTimestamp",
    "ValueTimestampHeaders",
    "ValueTransformer",
    "VersionedKeyValueStore",
    "VersionedRecord",
    "WallclockTimestampExtractor",
    "Window",
    "WindowStore",
    "Windowed",
    "WindowedSerdes",
    "Windows",
]
