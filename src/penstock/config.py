"""`StreamsConfig`: the typed and immutable configuration of an application.

Names are those of Kafka Streams with underscores instead of dots, without a `_class` at the end.
`StreamsConfig.from_properties` reads a `streams.properties` file. Names of durations end in `_ms`;
they accept a `timedelta`.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigException
from penstock.handlers import (
    DEAD_LETTER_QUEUE_TOPIC,
    DeserializationExceptionHandler,
    ProcessingExceptionHandler,
    ProductionExceptionHandler,
    check_handler,
    make_deserialization_handler,
    make_processing_handler,
    make_production_handler,
)
from penstock.properties import BOOLEANS, PROPERTY_OF, parse_settings, read_properties
from penstock.serdes.base import Serde
from penstock.setting_effects import (
    CONNECTION_PREFIXES,
    CONNECTION_SETTINGS,
    settings_without_effect,
)
from penstock.setting_types import (
    Milliseconds,
    Names,
    OptionalMilliseconds,
    OptionalPathName,
    PathName,
    default_of,
)
from penstock.suggestions import did_you_mean
from penstock.timestamps import TimestampExtractor, make_timestamp_extractor
from penstock.windows import to_ms

REUSE_KTABLE_SOURCE_TOPICS = "reuse.ktable.source.topics"
MERGE_REPARTITION_TOPICS = "merge.repartition.topics"
SINGLE_STORE_SELF_JOIN = "single.store.self.join"
ALL_OPTIMIZATIONS = frozenset(
    (REUSE_KTABLE_SOURCE_TOPICS, MERGE_REPARTITION_TOPICS, SINGLE_STORE_SELF_JOIN)
)

_LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamsConfig:
    """The settings of one application, with the names and meanings of Kafka Streams.

    `application_id` is the prefix of internal topics and the consumer group id; it must not change
    between runs. `log` is the path of an embedded log, or "kafka://host:port,...".
    `commit_interval_ms` is the time between two commits, or the minimum time between two batches.
    None, the default, commits as soon as possible, and runs batches back to back; the processing
    guarantee does not matter.
    `num_stream_threads` is the number of Spark cores on this machine; 1 means all.
    An exception handler is "fail", "continue", a handler, its class or name, or a function of
    (context, record, exception). `extra` contains all other settings: for clients (with the
    prefixes `consumer.`, `producer.`, `admin.` and `topic.`) and for user processors.

    Example:
        >>> from datetime import timedelta
        >>> config = StreamsConfig(
        ...     application_id="orders", log="orders.db", commit_interval_ms=timedelta(seconds=1)
        ... )
        >>> config.with_(num_standby_replicas=1).commit_interval_ms
        1000
    """

    #: Prefix of internal topics, and consumer group id. It must not change between runs.
    application_id: str
    #: Path of an embedded log, or `kafka://host:port,...`. `bootstrap.servers=host:port` is the
    #: same as `kafka://host:port`. On the command line: `--log` or `PENSTOCK_LOG`.
    log: OptionalPathName = default_of(None)
    #: Name of the instance in metrics and in the messages of standbys.
    client_id: str = ""
    #: `at_least_once` lets workers write outputs before the commit. `exactly_once_v2` is accepted,
    #: too.
    processing_guarantee: str = "exactly_once"
    #: The time between two commits of a lane, or the minimum time between two batches.
    commit_interval_ms: OptionalMilliseconds = default_of(None)
    #: `continuous`: long-lived Spark tasks; `batch`: a Spark job for each batch. Not set:
    #: `continuous`, except for `penstock run --once`.
    execution: str | None = None
    #: Number of Spark cores on this machine; 1 means all. It also divides the record cache.
    num_stream_threads: int = 1
    #: How long a task waits for records of an empty source partition, so that it processes several
    #: topics in the order of time. -1: it does not wait.
    max_task_idle_ms: Milliseconds = default_of(0)
    #: How long the application retries if the log is unavailable, and how long RETRY of a
    #: production handler may take.
    task_timeout_ms: Milliseconds = default_of(300_000)
    poll_ms: Milliseconds = default_of(100)
    buffered_records_per_partition: int = 1000
    #: Kafka's optimizations: `reuse.ktable.source.topics`, `merge.repartition.topics`,
    #: `single.store.self.join`.
    topology_optimization: Names = default_of(frozenset())
    #: Wraps every processor.
    processor_wrapper: Any = None
    #: Reject topologies with generated names of stores and internal topics.
    ensure_explicit_internal_resource_naming: bool = False
    upgrade_from: str | None = None

    #: Directory of the local state. On a cluster a relative path is in the temporary directory of
    #: each host.
    state_dir: PathName = default_of("penstock-state")
    #: The record cache. Each running task has this number divided by `num.stream.threads`. 0: no
    #: cache.
    statestore_cache_max_bytes: int = 10 * 1024 * 1024
    #: 0: a standby instance has no state, unless it serves queries. 1 or more: it keeps its state
    #: up to date.
    num_standby_replicas: int = 0
    acceptable_recovery_lag: int = 10_000
    state_cleanup_delay_ms: Milliseconds = default_of(600_000)
    #: The stores of DSL operators that name no supplier. `rocksdb` means on disk, with RocksDB's
    #: rules; the rows are in LMDB files.
    dsl_store_suppliers: Any = "rocksdb"
    #: Whether the stores of the DSL keep the headers of records.
    dsl_store_format: str = "DEFAULT"
    #: Time that the changelogs of window stores keep rows beyond the retention of the store.
    windowstore_changelog_additional_retention_ms: Milliseconds = default_of(
        86_400_000
    )
    #: Time between two deletions of consumed records in repartition topics.
    repartition_purge_interval_ms: Milliseconds = default_of(30_000)
    #: Replicas of internal topics; -1: the default of the broker.
    replication_factor: int = -1

    #: Used where no serde is given.
    default_key_serde: Serde[Any] | None = None
    #: Used where no serde is given.
    default_value_serde: Serde[Any] | None = None
    #: Timestamps of source records without `timestamp=`. Not set: the timestamp of the record.
    default_timestamp_extractor: TimestampExtractor | type | str | None = None
    #: Decides about input that cannot be deserialized.
    deserialization_exception_handler: Any = "fail"
    #: Decides about exceptions in a step.
    processing_exception_handler: Any = "fail"
    #: The processing handler also decides about the processors of global stores.
    processing_exception_handler_global_enabled: bool = False
    #: Decides about output that cannot be serialized or that its topic rejects.
    production_exception_handler: Any = "fail"
    #: The built-in handlers also write the record to this topic.
    errors_dead_letter_queue_topic_name: str | None = None

    #: `host:port` at which other instances reach this one.
    application_server: str = ""
    #: The metrics and sensors that are recorded.
    metrics_recording_level: str = "INFO"
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    if not TYPE_CHECKING:

        def __new__(cls, *given: Any, **settings: Any) -> Any:
            _check_arguments(cls, given, settings)
            return object.__new__(cls)

    def __post_init__(self) -> None:
        set_field = self._set
        for name in (f.name for f in fields(self) if f.name.endswith("_ms")):
            value = getattr(self, name)
            if value is not None or name != "commit_interval_ms":
                set_field(name, _duration(name, value))
        set_field("processing_guarantee", str(self.processing_guarantee).removesuffix("_v2"))
        set_field("topology_optimization", parse_optimizations(self.topology_optimization))
        set_field("dsl_store_suppliers", _store_suppliers(self.dsl_store_suppliers))
        set_field("processor_wrapper", _processor_wrapper(self.processor_wrapper))
        set_field("dsl_store_format", str(self.dsl_store_format).upper())
        set_field("metrics_recording_level", str(self.metrics_recording_level).upper())
        set_field("state_dir", os.fspath(self.state_dir))
        if self.log is not None:
            set_field("log", os.fspath(self.log))
        set_field("extra", dict(self.extra))
        self._check()

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check(self) -> None:
        _check_name("application_id", self.application_id)
        if self.errors_dead_letter_queue_topic_name is not None:
            _check_name(
                "errors_dead_letter_queue_topic_name", self.errors_dead_letter_queue_topic_name
            )
        _check_choice(self, "processing_guarantee", ("exactly_once", "at_least_once"))
        if self.execution is not None:
            _check_choice(self, "execution", ("batch", "continuous"))
        _check_choice(self, "dsl_store_format", ("DEFAULT", "HEADERS"))
        _check_choice(self, "metrics_recording_level", ("INFO", "DEBUG", "TRACE"))
        _check_minimum("commit_interval_ms", self.commit_interval_ms or 0, 0)
        for name, minimum in _MINIMUMS.items():
            _check_minimum(name, getattr(self, name), minimum)
        for name in ("default_key_serde", "default_value_serde"):
            serde = getattr(self, name)
            if serde is not None and not isinstance(serde, Serde):
                raise ConfigException(
                    f"{name} must be a serde, not {type(serde).__name__}: {serde!r}. "
                    "Use Serdes.string(), for example."
                )
        if self.application_server and not re.fullmatch(r".+:\d+", self.application_server):
            raise ConfigException(
                f"application_server must be host:port, not '{self.application_server}'."
            )
        # Unknown names raise here, not at the first bad record.
        make_timestamp_extractor(self.default_timestamp_extractor)
        check_handler(self.deserialization_exception_handler, "deserialization")
        check_handler(self.processing_exception_handler, "processing")
        check_handler(self.production_exception_handler, "production")
        for name in BOOLEANS:
            if not isinstance(getattr(self, name), bool):
                raise ConfigException(
                    f"{name} must be True or False, not {getattr(self, name)!r}."
                )

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, Any] | str | os.PathLike[str], **settings: Any
    ) -> StreamsConfig:
        """Create a configuration from Kafka's property names.

        `properties` is a mapping or the path of a `.properties` file; values are strings or
        objects. Keyword arguments override properties. Unknown properties go to `extra`.

        Args:
            properties: Settings under Kafka's names.
            settings: Settings under the names of the fields; they win.

        Returns:
            The configuration.
        """
        if not isinstance(properties, Mapping):
            properties = read_properties(properties)
        known, extra = parse_settings(properties, {f.name for f in fields(cls)})
        known["extra"] = extra
        known |= settings
        if "application_id" not in known:
            raise ConfigException(
                "The configuration has no application.id. "
                "It is the prefix of internal topics and the consumer group id."
            )
        return cls(**known)

    def with_(self, **settings: Any) -> StreamsConfig:
        """Return a copy with other settings.

        Args:
            settings: The new settings, under the names of the fields.
        """
        return replace(self, **settings)

    @property
    def is_continuous(self) -> bool:
        """Whether tasks run continuously, not in batches."""
        return self.execution != "batch"

    def app_configs(self) -> dict[str, Any]:
        """Return all settings by their property names, including `extra`."""
        own = {
            PROPERTY_OF.get(f.name, f.name.replace("_", ".")): getattr(self, f.name)
            for f in fields(self)
            if f.name != "extra"
        }
        return {name: value for name, value in own.items() if value is not None} | dict(self.extra)

    def app_configs_with_prefix(self, prefix: str) -> dict[str, Any]:
        """Return the settings with this prefix in their names, without the prefix.

        Args:
            prefix: The start of the names.
        """
        return {
            name.removeprefix(prefix): value
            for name, value in self.app_configs().items()
            if name.startswith(prefix)
        }

    def connection_settings(self) -> dict[str, Any]:
        """Return the settings of connections and security, for `open_log`."""
        renamed = {
            # Kafka's -1, the default of the system, is librdkafka's 0.
            CONNECTION_SETTINGS[name]: 0 if str(value).strip() == "-1" else value
            for name, value in self.extra.items() if name in CONNECTION_SETTINGS
        }
        return renamed | {
            name: value
            for name, value in self.extra.items()
            if name.startswith(CONNECTION_PREFIXES)
        }

    def warnings(self) -> list[str]:
        """Return a line for every setting that has no effect, with the reason."""
        return [
            f"The setting {name} has no effect: {reason}."
            for name, reason in settings_without_effect(self.app_configs())
        ]

    def make_processor_wrapper(self) -> Any:
        """Create and configure the processor wrapper; None if there is none.

        Returns:
            The wrapper, or None.
        """
        chosen = self.processor_wrapper
        wrapper = chosen() if isinstance(chosen, type) else chosen
        if hasattr(wrapper, "configure"):
            wrapper.configure(self.app_configs())
        return wrapper

    def timestamp_extractor(self) -> TimestampExtractor:
        """Create the default timestamp extractor.

        Returns:
            The extractor.
        """
        return make_timestamp_extractor(self.default_timestamp_extractor)

    def deserialization_handler(self) -> DeserializationExceptionHandler:
        """Create the handler; each task has its own.

        Returns:
            The handler.
        """
        return make_deserialization_handler(
            self.deserialization_exception_handler, self._handler_configs()
        )

    def processing_handler(self) -> ProcessingExceptionHandler:
        """Create the handler; each task has its own.

        Returns:
            The handler.
        """
        return make_processing_handler(self.processing_exception_handler, self._handler_configs())

    def production_handler(self) -> ProductionExceptionHandler:
        """Create the handler; each task has its own.

        Returns:
            The handler.
        """
        return make_production_handler(self.production_exception_handler, self._handler_configs())

    def dead_letter_topics(self) -> tuple[str, ...]:
        """Return the topics of the dead letter queues that the configuration names."""
        chosen = (
            self.errors_dead_letter_queue_topic_name,
            *(getattr(handler, "dead_letter_queue_topic", None) for handler in (
                self.deserialization_exception_handler, self.processing_exception_handler,
                self.production_exception_handler,
            )),
        )
        return tuple(dict.fromkeys(topic for topic in chosen if isinstance(topic, str)))

    def _handler_configs(self) -> dict[str, Any]:
        topic = self.errors_dead_letter_queue_topic_name
        return self.app_configs() | {DEAD_LETTER_QUEUE_TOPIC: topic}


if not TYPE_CHECKING:
    # For help() and notebooks, which would show the arguments of `__new__`.
    _self, *_settings = inspect.signature(StreamsConfig.__init__).parameters.values()
    StreamsConfig.__signature__ = inspect.Signature(_settings)


_MINIMUMS: Mapping[str, int] = {
    "num_stream_threads": 1,
    "max_task_idle_ms": -1,
    "task_timeout_ms": 0,
    "poll_ms": 0,
    "buffered_records_per_partition": 1,
    "statestore_cache_max_bytes": 0,
    "num_standby_replicas": 0,
    "acceptable_recovery_lag": 0,
    "state_cleanup_delay_ms": 0,
    "windowstore_changelog_additional_retention_ms": 0,
    "repartition_purge_interval_ms": 0,
    "replication_factor": -1,
}


def parse_optimizations(chosen: Any) -> frozenset[str]:
    """Return the set of optimizations that a value of `topology.optimization` selects."""
    if isinstance(chosen, str):
        chosen = re.split(r"\s*,\s*", chosen)
    try:
        names = frozenset(chosen)
    except TypeError:
        names = frozenset((chosen,))
    unknown = names - ALL_OPTIMIZATIONS - {"all", "none"}
    if unknown or (len(names) > 1 and names & {"all", "none"}):
        raise ConfigException(
            f"topology_optimization cannot be {', '.join(sorted(map(repr, names)))}. "
            f"Use 'all', 'none', or a selection of: {', '.join(sorted(ALL_OPTIMIZATIONS))}."
        )
    if "all" in names:
        return ALL_OPTIMIZATIONS
    return names - {"none"}


def _store_suppliers(chosen: Any) -> Any:
    if not isinstance(chosen, str):
        methods = ("key_value_store", "window_store", "session_store")
        if not all(hasattr(chosen, method) for method in methods):
            raise ConfigException(
                f"dsl_store_suppliers cannot be {chosen!r}. "
                f"It needs the methods {', '.join(methods)}."
            )
        return chosen
    name = chosen.rpartition(".")[2].rpartition("$")[2]
    known = {
        "rocksdb": "rocksdb", "rocks_db": "rocksdb", "rocksdbdslstoresuppliers": "rocksdb",
        "in_memory": "in_memory", "inmemorydslstoresuppliers": "in_memory",
    }
    found = known.get(name.lower())
    if found is None:
        raise ConfigException(
            f"dsl_store_suppliers cannot be '{chosen}'. "
            "Use 'rocksdb', 'in_memory', or an object with the methods of a supplier."
        )
    return found


def _processor_wrapper(chosen: Any) -> Any:
    if isinstance(chosen, str):
        module, _, name = chosen.replace(":", ".").rpartition(".")
        try:
            chosen = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigException(
                f"processor_wrapper '{chosen}' cannot be imported: {error}. "
                "Use the dotted name of a class."
            ) from error
    methods = ("wrap_processor_supplier", "wrap_fixed_key_processor_supplier")
    if chosen is not None and not all(hasattr(chosen, method) for method in methods):
        raise ConfigException(
            f"processor_wrapper must be a ProcessorWrapper or its class, not {chosen!r}. "
            f"It needs the methods {' and '.join(methods)}."
        )
    return chosen


def _duration(name: str, value: timedelta | int) -> int:
    try:
        return to_ms(value, name)
    except (TypeError, ValueError) as error:
        raise ConfigException(str(error)) from error


def _check_arguments(cls: type, given: tuple[Any, ...], settings: Mapping[str, Any]) -> None:
    """Raise a TypeError with advice for settings without a name, or with an unknown one."""
    from_properties = "StreamsConfig.from_properties({'application.id': ...})"
    if given:
        advice = f"For names with dots use {from_properties}."
        if isinstance(given[0], str):
            advice = f"Use StreamsConfig(application_id={given[0]!r})."
        raise TypeError(f"StreamsConfig takes settings by name, not {given[0]!r}. {advice}")
    names = [each.name for each in fields(cls)]
    for name in settings:
        if name not in names:
            in_python = name.replace(".", "_")
            hint = did_you_mean(in_python, names)
            if in_python in names:
                hint = f" In Python, use {in_python}."
            raise TypeError(
                f"StreamsConfig has no setting '{name}'.{hint} Settings of clients and your own go "
                f"into extra={{...}}, or use {from_properties}."
            )


def _check_name(setting: str, name: Any) -> None:
    if not isinstance(name, str) or not _LEGAL_NAME.fullmatch(name) or name in {".", ".."}:
        raise ConfigException(
            f"{setting} cannot be {name!r}, because it is part of topic names. "
            "Use 1 to 249 letters, digits, dots, underscores or hyphens."
        )


def _check_choice(config: StreamsConfig, setting: str, choices: tuple[str, ...]) -> None:
    value = getattr(config, setting)
    if value not in choices:
        raise ConfigException(f"{setting} cannot be {value!r}. Use one of: {', '.join(choices)}.")


def _check_minimum(setting: str, value: Any, minimum: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigException(
            f"{setting} must be an integer, not {type(value).__name__}: {value!r}."
        )
    if value < minimum:
        raise ConfigException(f"{setting} must be at least {minimum}, not {value}.")
