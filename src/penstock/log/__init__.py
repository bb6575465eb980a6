"""Storage of topics: the contract of a log, and its implementations.

    base.py          the contract
    types.py         the data that goes in and out
    errors.py        the errors of a log
    topic_config.py  the settings of a topic, with Kafka's names
    arrow_types.py   the Arrow schema of records
    scheme.py        a kind of log: address, opener, capabilities
    registry.py      the known kinds, and `open_log`
    embedded/        a log in one SQLite file
    kafka/           a log on a Kafka cluster
"""

from __future__ import annotations

from penstock.log.base import Candidate, Lease, Log, Member, RangeReader, Transaction
from penstock.log.registry import open_log, scheme_of
from penstock.log.types import (
    AppendResult,
    Assignment,
    CommittedOffset,
    LogBatch,
    PartitionOffsets,
    StagedRecords,
    TopicDescription,
    TopicPartition,
)
from penstock.record import RecordColumns

__all__ = [
    "AppendResult",
    "Assignment",
    "Candidate",
    "RecordColumns",
    "CommittedOffset",
    "Lease",
    "Log",
    "LogBatch",
    "Member",
    "PartitionOffsets",
    "RangeReader",
    "StagedRecords",
    "TopicDescription",
    "TopicPartition",
    "Transaction",
    "open_log",
    "scheme_of",
]
