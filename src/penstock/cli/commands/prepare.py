"""`penstock prepare`: creates the class archive with which Spark's JVM starts faster."""

from __future__ import annotations

import argparse
import logging
import tempfile
from pathlib import Path
from typing import Any

from penstock.cli.parsing import Subparsers, add_command
from penstock.cli.terminal import Terminal

_MASTER = "local[2]"


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    add_command(
        subparsers, "prepare", prepare, summary="make applications start faster", log=False,
        details="""
Creates a class archive for Spark's JVM, with which it needs half of its CPU time to start. The
archive is stored in the Python environment (about 70 MB) and is used by all applications that run
on this machine ('local' masters). Creating it takes about 15 seconds. Run the command again after
Java or PySpark was updated; until then Java ignores the old archive. In a container image, run it
after penstock is installed.""",
        examples="""
  penstock prepare
""",
    )


def prepare(args: argparse.Namespace, terminal: Terminal) -> None:
    """Run a small application in both execution modes, and archive the classes that it loads."""
    # The other commands start faster without Spark.
    from penstock.config import StreamsConfig  # noqa: PLC0415
    from penstock.engine.spark.class_archive import archive_path, record_classes  # noqa: PLC0415

    logging.getLogger("penstock").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="penstock-prepare-") as name:
        config = StreamsConfig(
            application_id="prepare", log=str(Path(name, "prepare.db")), state_dir=name
        )
        with record_classes(config, _MASTER) as context:
            for execution in ("batch", "continuous"):
                _run_application(context, config.with_(
                    application_id=f"prepare-{execution}", execution=execution
                ))
    path = archive_path()
    terminal.note(f"{path}: {path.stat().st_size / 1e6:.0f} MB")


def _run_application(context: Any, config: Any) -> None:
    """Count words, with two sub-topologies."""
    from penstock import Serdes, Streams, StreamsBuilder  # noqa: PLC0415
    from penstock.log import RecordColumns, open_log  # noqa: PLC0415

    builder = StreamsBuilder()
    words = builder.stream("words", key=Serdes.string(), value=Serdes.string())
    words.group_by(lambda key, value: value, key=Serdes.string()).count().to_stream().to("counts")
    with open_log(config.log) as log:
        if not log.topics():
            log.create_topic("words", 2)
            log.create_topic("counts", 2)
        log.append("words", 0, RecordColumns([b"1", b"2"], [b"one", b"two"]))
    with Streams(builder.build(), config, spark=context) as streams:
        streams.run_until_caught_up()
