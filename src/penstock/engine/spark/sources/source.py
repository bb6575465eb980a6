"""`PenstockDataSource`: the data source with the format `penstock`."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from penstock.engine.spark.sources.options import Options
from penstock.engine.spark.sources.record_writer import RecordWriter
from penstock.engine.spark.sources.relation import StoreRelation, find_relation
from penstock.engine.spark.sources.writers import TopicStreamWriter, TopicWriter
from penstock.errors import ConfigException


class PenstockDataSource(DataSource):
    """Topics, changelogs and stores of a log as DataFrames; see docs/spark-data.md."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "penstock"

    def schema(self) -> StructType:
        """Return the columns, if the user gives no schema."""
        return find_relation(Options(self.options)).schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of `spark.read`."""
        return find_relation(Options(self.options)).reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of `spark.readStream`."""
        relation = find_relation(Options(self.options))
        if isinstance(relation, StoreRelation):
            raise ConfigException(
                "A store cannot be read as a stream. Read its changes: set the option 'changelog' "
                "instead of 'store'."
            )
        return relation.stream_reader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of `df.write`."""
        return TopicWriter(self._record_writer(schema, overwrite))

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return the writer of `df.writeStream`."""
        return TopicStreamWriter(self._record_writer(schema, overwrite))

    def _record_writer(self, schema: StructType, overwrite: bool) -> RecordWriter:
        if overwrite:
            raise ConfigException(
                "A topic cannot be overwritten. Use mode('append'), or delete the topic first."
            )
        return RecordWriter.of(Options(self.options, writes=True), schema)
