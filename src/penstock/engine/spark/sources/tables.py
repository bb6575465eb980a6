"""The stores of an application as DataFrames, with the serdes of its topology.

A serde cannot be an option of a data source, because options are strings. Therefore the serdes of a
store are in a data source of their own, which is registered once per session.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from penstock.config import StreamsConfig
from penstock.engine.spark.pyspark_internals import active_context
from penstock.engine.spark.sources.formats import Column
from penstock.engine.spark.sources.options import LogAddress, Options
from penstock.engine.spark.sources.registration import chosen_python
from penstock.engine.spark.sources.relation import StoreRelation
from penstock.engine.spark.sources.serde_columns import serde_column
from penstock.engine.spark.sources.store_cut import store_ends
from penstock.engine.spark.sources.store_layout import StoreLayout, application_layouts
from penstock.errors import ConfigException, InvalidStateStoreException
from penstock.serdes.base import Serde
from penstock.suggestions import did_you_mean, listed
from penstock.topology.topology import Topology

#: Session -> the names of the data sources that are registered in it.
_registered: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()


def table(topology: Topology, config: StreamsConfig, store: str, spark: Any) -> DataFrame:
    """Return a store at one commit as a DataFrame."""
    known = topology.stores.keys() | topology.global_stores.keys()
    if store not in known:
        raise InvalidStateStoreException(
            f"The topology has no store '{store}'.{did_you_mean(store, known)} "
            f"Stores: {listed(sorted(known))}."
        )
    return tables(topology, config, [store], spark)[store]


def create_views(topology: Topology, config: StreamsConfig, spark: Any) -> list[str]:
    """Create a temporary view for each store that the user has named; return their names."""
    known = topology.stores.keys() | topology.global_stores.keys()
    named = sorted(known - topology.generated_stores)
    found = tables(topology, config, named, spark, skip_unreadable=True)
    for name, frame in found.items():
        frame.createOrReplaceTempView(f"`{name}`")
    return list(found)


def tables(
    topology: Topology, config: StreamsConfig, stores: Iterable[str], spark: Any, *,
    skip_unreadable: bool = False,
) -> dict[str, DataFrame]:
    """Return stores as DataFrames, all at the same cut.

    `skip_unreadable`: leave out buffers and stores without a changelog.
    """
    session = find_session(spark)
    address = _address(config)
    with address.open(read_only=True) as log:
        layouts = application_layouts(
            log, config.application_id, stores, skip_unreadable=skip_unreadable
        )
        ends = store_ends(log, layouts.values())
    return {
        name: _table(session, topology, config, layout, ends[name])
        for name, layout in layouts.items()
    }


def find_session(spark: Any) -> SparkSession:
    """Return the session to use: the given one, the active one, or that of the active context."""
    if isinstance(spark, SparkContext):
        return SparkSession(spark)
    session = spark or SparkSession.getActiveSession()
    if session is None and (context := active_context()) is not None:
        session = SparkSession(context)
    if session is None:
        raise ConfigException(
            "No Spark session exists. Pass one: streams.table(name, spark=SparkSession...)."
        )
    found: SparkSession = session
    return found


def _address(config: StreamsConfig) -> LogAddress:
    assert config.log is not None
    settings = config.connection_settings()
    return LogAddress(
        str(config.log), tuple((name, str(value)) for name, value in settings.items())
    )


def _table(
    session: SparkSession, topology: Topology, config: StreamsConfig, layout: StoreLayout,
    ends: Mapping[int, int],
) -> DataFrame:
    spec = topology.stores.get(layout.name) or topology.global_stores[layout.name].store
    builder = spec.resolve(config)
    columns = (
        _column("key", builder.key_serde or config.default_key_serde, layout),
        _column("value", builder.value_serde or config.default_value_serde, layout),
    )
    address = _address(config)
    options = {
        "log": address.address, "application": config.application_id, "store": layout.name,
        "endingOffsets": msgspec.json.encode({str(n): end for n, end in ends.items()}).decode(),
        **{f"kafka.{name}": value for name, value in address.connection},
    }
    if getattr(builder, "is_windowed", False):
        options["window.retention"] = str(builder.retention_ms)
    return session.read.format(_register(session, columns)).options(**options).load()


def _column(name: str, serde: Serde[Any] | None, layout: StoreLayout) -> Column:
    if serde is None:
        raise ConfigException(f"Store '{layout.name}' has no serde for its {name}s.")
    return serde_column(name, serde.for_store(layout.topic, name == "key"))


def _register(session: SparkSession, columns: tuple[Column, Column]) -> str:
    """Register the data source of these columns, once per session. Return its name."""
    name = f"penstock-{hashlib.sha256(repr(columns).encode()).hexdigest()[:16]}"
    known = _registered.setdefault(session, set())
    if name not in known:
        with chosen_python(session):
            session.dataSource.register(_table_source(name, columns))
        known.add(name)
    return name


def _table_source(format_name: str, columns: tuple[Column, Column]) -> type[DataSource]:
    class TableSource(DataSource):
        """The stores with these columns."""

        @classmethod
        def name(cls) -> str:
            return format_name

        def schema(self) -> StructType:
            return StoreRelation(Options(self.options), columns).schema()

        def reader(self, schema: StructType) -> DataSourceReader:
            return StoreRelation(Options(self.options), columns).reader(schema)

    return TableSource
