# The public names of penstock and where each is defined.
# lazy-loader imports a name when it is first used; type checkers and editors read this file.

from .app import Streams as Streams
from .config import StreamsConfig as StreamsConfig
from .config import TopologyConfig as TopologyConfig
from .dsl.branched import BranchedKStream as BranchedKStream
from .dsl.builder import StreamsBuilder as StreamsBuilder
from .dsl.cogrouped import CogroupedKStream as CogroupedKStream
from .dsl.cogrouped import SessionWindowedCogroupedKStream as SessionWindowedCogroupedKStream
from .dsl.cogrouped import TimeWindowedCogroupedKStream as TimeWindowedCogroupedKStream
from .dsl.grouped import KGroupedStream as KGroupedStream
from .dsl.grouped import KGroupedTable as KGroupedTable
from .dsl.options import Branched as Branched
from .dsl.options import BufferConfig as BufferConfig
from .dsl.options import Materialized as Materialized
from .dsl.options import Printed as Printed
from .dsl.options import StoreType as StoreType
from .dsl.options import Suppressed as Suppressed
from .dsl.stream import KStream as KStream
from .dsl.table import GlobalKTable as GlobalKTable
from .dsl.table import KTable as KTable
from .dsl.windowed import SessionWindowedKStream as SessionWindowedKStream
from .dsl.windowed import TimeWindowedKStream as TimeWindowedKStream
from .engine.exception_handler import StreamThreadExceptionResponse as StreamThreadExceptionResponse
from .engine.lifecycle import State as State
from .engine.observe.metadata import TaskMetadata as TaskMetadata
from .engine.observe.metadata import ThreadMetadata as ThreadMetadata
from .engine.observe.restore import StateRestoreListener as StateRestoreListener
from .engine.standby.update_listener import StandbyUpdateListener as StandbyUpdateListener
from .engine.standby.update_listener import SuspendReason as SuspendReason
from .errors import ConfigException as ConfigException
from .errors import InvalidStateStoreException as InvalidStateStoreException
from .errors import InvalidStateStorePartitionException as InvalidStateStorePartitionException
from .errors import MisconfiguredInternalTopicException as MisconfiguredInternalTopicException
from .errors import MissingSourceTopicException as MissingSourceTopicException
from .errors import ProcessingFailedException as ProcessingFailedException
from .errors import ProcessorStateException as ProcessorStateException
from .errors import SchemaRegistryException as SchemaRegistryException
from .errors import SerializationException as SerializationException
from .errors import StreamsException as StreamsException
from .errors import TaskCorruptedException as TaskCorruptedException
from .errors import TaskIdFormatException as TaskIdFormatException
from .errors import TaskMigratedException as TaskMigratedException
from .errors import TopologyException as TopologyException
from .handlers import DefaultProductionExceptionHandler as DefaultProductionExceptionHandler
from .handlers import DeserializationExceptionHandler as DeserializationExceptionHandler
from .handlers import ErrorHandlerContext as ErrorHandlerContext
from .handlers import LogAndContinueExceptionHandler as LogAndContinueExceptionHandler
from .handlers import (
    LogAndContinueProcessingExceptionHandler as LogAndContinueProcessingExceptionHandler,
)
from .handlers import (
    LogAndContinueProductionExceptionHandler as LogAndContinueProductionExceptionHandler,
)
from .handlers import LogAndFailExceptionHandler as LogAndFailExceptionHandler
from .handlers import LogAndFailProcessingExceptionHandler as LogAndFailProcessingExceptionHandler
from .handlers import ProcessingExceptionHandler as ProcessingExceptionHandler
from .handlers import ProducedRecord as ProducedRecord
from .handlers import ProductionExceptionHandler as ProductionExceptionHandler
from .handlers import Response as Response
from .handlers import SerializationExceptionOrigin as SerializationExceptionOrigin
from .metrics import MetricName as MetricName
from .metrics import Sensor as Sensor
from .metrics import Stat as Stat
from .metrics import StreamsMetrics as StreamsMetrics
from .processors.api import Cancellable as Cancellable
from .processors.api import ContextualFixedKeyProcessor as ContextualFixedKeyProcessor
from .processors.api import ContextualProcessor as ContextualProcessor
from .processors.api import FixedKeyProcessor as FixedKeyProcessor
from .processors.api import Processor as Processor
from .processors.api import ProcessorContext as ProcessorContext
from .processors.api import ProcessorWrapper as ProcessorWrapper
from .processors.api import PunctuationType as PunctuationType
from .processors.api import ValueTransformer as ValueTransformer
from .processors.api import WrappedProcessorSupplier as WrappedProcessorSupplier
from .record import Change as Change
from .record import FixedKeyRecord as FixedKeyRecord
from .record import Headers as Headers
from .record import Record as Record
from .record import RecordContext as RecordContext
from .record import RecordMetadata as RecordMetadata
from .record import TaskId as TaskId
from .record import ValueAndTimestamp as ValueAndTimestamp
from .record import current_record as current_record
from .serdes.base import Serde as Serde
from .serdes.builtin import Serdes as Serdes
from .serdes.headers import HeadersSerde as HeadersSerde
from .serdes.windowed import WindowedSerdes as WindowedSerdes
from .stores.api.builder import StoreBuilder as StoreBuilder
from .stores.api.dsl_suppliers import BuiltInDslStoreSuppliers as BuiltInDslStoreSuppliers
from .stores.api.dsl_suppliers import DslKeyValueParams as DslKeyValueParams
from .stores.api.dsl_suppliers import DslSessionParams as DslSessionParams
from .stores.api.dsl_suppliers import DslStoreFormat as DslStoreFormat
from .stores.api.dsl_suppliers import DslStoreSuppliers as DslStoreSuppliers
from .stores.api.dsl_suppliers import DslWindowParams as DslWindowParams
from .stores.api.results import AggregationWithHeaders as AggregationWithHeaders
from .stores.api.results import StoreIterator as StoreIterator
from .stores.api.results import ValueTimestampHeaders as ValueTimestampHeaders
from .stores.api.results import VersionedRecord as VersionedRecord
from .stores.api.state_serdes import StateSerdes as StateSerdes
from .stores.api.store import StateStore as StateStore
from .stores.api.stores import Stores as Stores
from .stores.bytes.store import BytesStore as BytesStore
from .stores.typed.key_value import KeyValueStore as KeyValueStore
from .stores.typed.key_value import TimestampedKeyValueStore as TimestampedKeyValueStore
from .stores.typed.key_value import (
    TimestampedKeyValueStoreWithHeaders as TimestampedKeyValueStoreWithHeaders,
)
from .stores.typed.session import SessionStore as SessionStore
from .stores.typed.session import SessionStoreWithHeaders as SessionStoreWithHeaders
from .stores.typed.versioned import VersionedKeyValueStore as VersionedKeyValueStore
from .stores.typed.window import TimestampedWindowStore as TimestampedWindowStore
from .stores.typed.window import (
    TimestampedWindowStoreWithHeaders as TimestampedWindowStoreWithHeaders,
)
from .stores.typed.window import WindowStore as WindowStore
from .timestamps import ConsumedRecord as ConsumedRecord
from .timestamps import FailOnInvalidTimestamp as FailOnInvalidTimestamp
from .timestamps import LogAndSkipOnInvalidTimestamp as LogAndSkipOnInvalidTimestamp
from .timestamps import TimestampExtractor as TimestampExtractor
from .timestamps import UsePartitionTimeOnInvalidTimestamp as UsePartitionTimeOnInvalidTimestamp
from .timestamps import WallclockTimestampExtractor as WallclockTimestampExtractor
from .topology.describe import TopologyDescription as TopologyDescription
from .topology.nodes import Partitioner as Partitioner
from .topology.nodes import TopicNameExtractor as TopicNameExtractor
from .topology.offset_reset import AutoOffsetReset as AutoOffsetReset
from .topology.topology import Topology as Topology
from .windows import EmitStrategy as EmitStrategy
from .windows import JoinWindows as JoinWindows
from .windows import SessionWindow as SessionWindow
from .windows import SessionWindows as SessionWindows
from .windows import SlidingWindows as SlidingWindows
from .windows import TimeWindows as TimeWindows
from .windows import UnlimitedWindows as UnlimitedWindows
from .windows import Window as Window
from .windows import Windowed as Windowed
from .windows import Windows as Windows
