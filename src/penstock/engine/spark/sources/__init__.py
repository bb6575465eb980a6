"""Topics and stores as data of Spark: the data source `penstock`, and tables of applications.

    source         `PenstockDataSource`: what Spark calls
    registration   registers the data source in a session
    options        the options of reads and writes
    relation       what the options of a read name: a topic or a store
    ranges         options as ranges of offsets
    readers        the batch readers
    stream_reader  the reader of streams
    read_limits    limits of the batches of a stream
    topic_rows     the rows of a topic
    store_layout   finds a store in the log
    store_cut      the committed ends of stores at one time
    store_rows     the rows of a store
    formats        the formats of keys and values
    json_values    JSON as columns: inference and strict conversion
    decoding       bytes as columns of Arrow
    writers        the writers of batches and streams
    record_writer  rows as records, in executors
    sink           commits every batch of a stream exactly once
    tables         stores of an application as DataFrames and views
    serde_columns  columns that a serde of the user decodes
    python_types   Python types as types of Spark
"""

from __future__ import annotations

from penstock.engine.spark.sources.registration import register
from penstock.engine.spark.sources.source import PenstockDataSource
from penstock.engine.spark.sources.tables import create_views, table

__all__ = ["PenstockDataSource", "create_views", "register", "table"]
