"""Where topics are: the contract of a log, and the logs that keep it.

    base.py          the contract: what a log promises
    words.py         the plain data that goes in and comes out
    errors.py        what a log refuses
    topic_config.py  the settings of a topic, with Kafka's names
    embedded/        one SQLite file
    kafka/           a Kafka cluster
"""

from __future__ import annotations

import os
import re
from typing import Any

from penstock.errors import ConfigException
from penstock.extras import explain_missing_extra
from penstock.log.base import Candidate, Lease, Log, Member, RangeReader, Transaction
from penstock.log.types import (
    AppendResult,
    Assignment,
    Columns,
    CommittedOffset,
    LogBatch,
    PartitionOffsets,
    StagedRecords,
    TopicDescription,
    TopicPartition,
)

#: HOST:PORT,HOST:PORT without what has to stand before it.
_SERVERS = re.compile(r"(([\w.-]+|\[[0-9a-fA-F:]+\]):\d+(,|$))+(?<!,)")
#: The beginning of `kafka://`, as it may be written wrong.
_KAFKA = re.compile(r"kafka:/*", re.IGNORECASE)


def check_address(where: str | os.PathLike[str]) -> None:
    """Raise `ConfigException` for an address that was meant to be a cluster and is written wrong.

    It would be the path of a new file otherwise.
    """
    address = os.fspath(where)
    if address.startswith("kafka://"):
        return
    scheme = _KAFKA.match(address)
    if scheme is not None:
        servers = address[scheme.end() :] or "HOST"
        meant = servers if ":" in servers else f"{servers}:9092"
        raise ConfigException(f"No log can be at '{address}'. Did you mean kafka://{meant}?")
    if _SERVERS.fullmatch(address):
        raise ConfigException(
            f"No log can be at '{address}'. Did you mean kafka://{address}? "
            f"A file of that name is './{address}'."
        )
    if "://" in address:
        raise ConfigException(
            f"No log can be at '{address}'. It is a path, or kafka://HOST:PORT,HOST:PORT."
        )


def open_log(where: str | os.PathLike[str], **options: Any) -> Log:
    """The log at an address: a path, the embedded one, or `kafka://host:9092,...`, a cluster.

    `options` are those of `EmbeddedOptions`, or for Kafka those of `KafkaOptions` and librdkafka's
    settings. pyarrow, sqlite3 and confluent_kafka are imported here, not before.
    """
    check_address(where)
    address = os.fspath(where)
    if address.startswith("kafka://"):
        with explain_missing_extra():
            from penstock.log.kafka.client.settings import KafkaOptions  # noqa: PLC0415
            from penstock.log.kafka.log import KafkaLog  # noqa: PLC0415  (see the docstring)

        return KafkaLog(address, KafkaOptions.of(options))
    from penstock.log.embedded.log import EmbeddedLog  # noqa: PLC0415  (see the docstring)
    from penstock.log.embedded.options import EmbeddedOptions  # noqa: PLC0415

    return EmbeddedLog(address, EmbeddedOptions(**options))


__all__ = [
    "AppendResult",
    "Assignment",
    "Candidate",
    "Columns",
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
    "check_address",
    "open_log",
]
