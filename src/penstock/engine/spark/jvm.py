"""Starts Spark's JVM without spark-submit, if nothing is configured that spark-submit would apply.

spark-submit starts a first JVM that computes the command line of the second one, which then loads
Spark's deployment code and searches a class path in no order. Together they take about half of the
time until a context exists. The command line here is the result for `local[n]` without any settings
of the user. `tests/engine/spark/test_jvm.py` compares it with that of spark-submit.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError

from penstock.engine.spark.pyspark_internals import connect_to_jvm, pyspark_directory
from penstock.engine.spark.settings import python_path

#: The version of Spark whose command line this is.
KNOWN_VERSION = "4.3."
#: Variables that spark-submit and its scripts read. If one is set, spark-submit starts the JVM.
SUBMIT_VARIABLES = frozenset((
    "HADOOP_CONF_DIR", "PYSPARK_PIN_THREAD", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR",
    "SPARK_DAEMON_JAVA_OPTS", "SPARK_DIST_CLASSPATH", "SPARK_DRIVER_MEMORY", "SPARK_ENV_LOADED",
    "SPARK_HOME", "SPARK_JAVA_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_MEM", "SPARK_PREPEND_CLASSES",
    "SPARK_SUBMIT_LIBRARY_PATH", "SPARK_SUBMIT_OPTS", "SPARK_TESTING", "YARN_CONF_DIR",
))
MAIN_CLASS = "org.apache.spark.api.python.PythonGatewayServer"
#: The memory of the driver, as spark-submit sets it by default.
_MEMORY = "-Xmx1g"
#: The packages that Spark opens, by module.
_OPENED = {
    "java.base": (
        "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio",
        "java.util", "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref",
        "sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar",
    ),
    "java.security.jgss": ("sun.security.krb5",),
}
_PROPERTIES = {
    "io.netty.tryReflectionSetAccessible": "true", "io.netty.allocator.type": "pooled",
    "io.netty.handler.ssl.defaultEndpointVerificationAlgorithm": "NONE",
    "derby.connection.requireAuthentication": "false",
}
#: Options of newer versions of Java, which older ones ignore.
_NEWER_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions", "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
#: The jars with most of the classes of a SparkContext. Java opens the jars of a class path in order
#: until it finds a class (measured: 0.4 s of CPU time with the jars in alphabetical order).
_FIRST_JARS = (
    "slf4j-api", "spark-core", "scala-library", "spark-common-utils_", "hadoop-client-api",
    "log4j-api", "log4j-core", "log4j-slf4j2", "spark-network-common", "netty-", "jackson-",
    "py4j", "spark-unsafe", "spark-kvstore", "metrics-core", "guava", "commons-lang3", "kryo",
    "chill", "spark-", "json4s", "hadoop-client-runtime",
)
#: As spark-submit sets them, but without SPARK_HOME: with it, workers import PySpark from a zip
#: file without compiled modules (measured: 0.7 s of CPU time). PYTHONPATH has the package.
_VARIABLES = {"PYTHONHASHSEED": "0", "SPARK_CONNECT_MODE": "0"}
#: Ctrl-C in a terminal must not reach the JVM, so that a running batch can finish.
_IGNORING_INTERRUPTS = ("/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh")
_POLL_S = 0.005


def needs_spark_submit(
    settings: Mapping[str, object], environment: Mapping[str, str] = os.environ
) -> bool:
    """Whether spark-submit must start the JVM of `local[n]`: there is something that it applies.

    `settings` are those of the user. Any of them may be one that only spark-submit applies.
    """
    return (
        not pyspark.__version__.startswith(KNOWN_VERSION)
        or os.name != "posix"
        or any(name.startswith("spark.") for name in settings)
        or not SUBMIT_VARIABLES.isdisjoint(environment)
        or Path(pyspark_directory(), "conf").exists()
    )


def command_line(java: Path, options: Sequence[str], conf: SparkConf) -> list[str]:
    """Return the command line of the JVM. `options` are additional ones of Java."""
    options = [*(conf.get("spark.driver.extraJavaOptions") or "").split(), *options]
    opened = [
        f"--add-opens={module}/{package}=ALL-UNNAMED"
        for module, packages in _OPENED.items() for package in packages
    ]
    properties = {**_PROPERTIES, "spark.submit.deployMode": "client", **dict(conf.getAll())}
    return [
        str(java), "-cp", _class_path(), _MEMORY, *options, *_NEWER_OPTIONS, *opened,
        *(f"-D{name}={value}" for name, value in properties.items()), MAIN_CLASS,
    ]


def _class_path() -> str:
    def order(jar: Path) -> tuple[int, str]:
        first = (n for n, prefix in enumerate(_FIRST_JARS) if jar.name.startswith(prefix))
        return next(first, len(_FIRST_JARS)), jar.name

    jars = Path(pyspark_directory(), "jars").glob("*.jar")
    return os.pathsep.join(map(str, sorted(jars, key=order)))


def start_jvm(
    java: Path, options: Sequence[str], conf: SparkConf, environment: Mapping[str, str],
    stderr: int,
) -> Any:
    """Start a JVM whose standard error is a file descriptor. Returns its gateway.

    Sets `spark.python.daemon.module`: with the variables of this JVM, workers can import it.

    Raise `PySparkRuntimeError` if it ends, as PySpark does.
    """
    conf.set("spark.python.daemon.module", "penstock.engine.spark.daemon")
    with tempfile.TemporaryDirectory(prefix="penstock-spark-") as directory:
        info = Path(directory, "connection")
        process = subprocess.Popen(
            [*_IGNORING_INTERRUPTS, *command_line(java, options, conf)],
            # The JVM ends at the end of its standard input: with this process.
            stdin=subprocess.PIPE, stderr=stderr,
            env={
                **os.environ, **environment, **_VARIABLES, "PYTHONPATH": python_path(),
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info),
            },
        )
        while not info.exists():
            if process.poll() is not None:
                raise PySparkRuntimeError(
                    errorClass="JAVA_GATEWAY_EXITED", messageParameters={}
                )
            time.sleep(_POLL_S)
        return connect_to_jvm(info, process)
