"""penstock: Kafka Streams for Python, run on Apache Spark.

Reading order, along the way of a record:

    dsl/         what the user says: StreamsBuilder, KStream, KTable
    topology/    what will run: the plan, its rules, the topology, its description
    task/        one sub-topology over one partition, record by record
    processors/  what each operator does
    stores/      where rows are kept, in four layers
    testing/     TopologyTestDriver
"""

from penstock.config import StreamsConfig
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
from penstock.handlers import (
    DefaultProductionExceptionHandler,
    DeserializationExceptionHandler,
    ErrorHandlerContext,
    LogAndContinueExceptionHandler,
    LogAndContinueProcessingExceptionHandler,
    LogAndFailExceptionHandler,
    LogAndFailProcessingExceptionHandler,
    ProcessingExceptionHandler,
    ProductionExceptionHandler,
    Response,
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
)
from penstock.record import (
    FixedKeyRecord,
    Headers,
    Record,
    RecordContext,
    RecordMetadata,
    TaskId,
    ValueAndTimestamp,
)
from penstock.serde import Serde
from penstock.serdes import Serdes
from penstock.stores.builder import StoreBuilder
from penstock.stores.dsl_suppliers import BuiltInDslStoreSuppliers, DslStoreSuppliers
from penstock.stores.stores import Stores
from penstock.stores.values import (
    AggregationWithHeaders,
    ValueTimestampHeaders,
    VersionedRecord,
)
from penstock.timestamps import (
    FailOnInvalidTimestamp,
    LogAndSkipOnInvalidTimestamp,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
)
from penstock.topology.describe import TopologyDescription
from penstock.topology.offset_reset import AutoOffsetReset
from penstock.topology.topology import Topology
from penstock.windowed_serdes import WindowedSerdes
from penstock.windows import (
    EmitStrategy,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Window,
    Windowed,
    Windows,
)

__all__ = [name for name in dir() if not name.startswith("_") and name[0].isupper()]
