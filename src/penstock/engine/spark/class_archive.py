"""The class archive of Spark's JVM: its classes in the form in which Java maps them into memory.

Java reads, verifies and links about 10,000 classes of Spark at every start, which takes half of the
JVM's CPU time until the first job. A class archive (Java's "class data sharing") holds the result.
`penstock prepare` creates it once for an environment, with a training run. Java ignores an archive
of another version of Java or of another class path.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext

from penstock.config import StreamsConfig
from penstock.engine.spark.gateway import start_gateway
from penstock.engine.spark.jvm import needs_spark_submit, start_jvm
from penstock.engine.spark.pyspark_internals import active_context, current_gateway
from penstock.engine.spark.settings import build_conf, launch_environment
from penstock.errors import ConfigException, StreamsException
from penstock.java import find_java

#: Java writes warnings to standard output by default, for example that it ignores an archive.
_LOG_OPTIONS = ("-Xlog:disable", "-Xlog:all=error:stderr")
#: How long the JVM may take to write the archive when it ends.
_WRITE_S = 120.0


def archive_path() -> Path:
    """Return the path of the archive: in this Python environment, as the jars of Spark."""
    return Path(sys.prefix, "share", "penstock", "spark.jsa")


def archive_options() -> tuple[str, ...]:
    """Return the options of Java that use the archive. Empty if there is none."""
    path = archive_path()
    return (f"-XX:SharedArchiveFile={path}", *_LOG_OPTIONS) if path.exists() else ()


@contextmanager
def record_classes(config: StreamsConfig, master: str) -> Iterator[SparkContext]:
    """Start a JVM that creates the archive at the end of the block from the classes it has loaded.

    The process must not use Spark before or after.
    """
    if active_context() is not None or current_gateway() is not None:
        raise ConfigException("This process has used Spark. Create the archive in a new one.")
    if needs_spark_submit(config.extra):
        raise ConfigException(
            "The class archive is used only if penstock starts Spark's JVM itself. It does not, "
            "because this is another version of Spark, or because SPARK_HOME, SPARK_CONF_DIR, "
            "PYSPARK_SUBMIT_ARGS or another variable of spark-submit is set."
        )
    target = archive_path()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="archive-", dir=target.parent) as directory:
        written = Path(directory, target.name)
        conf = build_conf(config, master)
        launch = functools.partial(
            start_jvm, find_java("Spark", ConfigException),
            (f"-XX:ArchiveClassesAtExit={written}", *_LOG_OPTIONS), conf,
            launch_environment(master),
        )
        gateway, output = start_gateway(launch)
        context = SparkContext(conf=conf, gateway=gateway)
        try:
            context.setLogLevel("OFF")
            yield context
        finally:
            context.stop()
            gateway.shutdown()
            # The JVM ends with its standard input.
            gateway.proc.stdin.close()
            gateway.proc.wait(_WRITE_S)
            output.wait(1.0)
        if not written.exists():
            lines = "\n".join(f"    {line}" for line in output.last_lines)
            raise StreamsException(f"Java has not written the class archive. Its output:\n{lines}")
        os.replace(written, target)
