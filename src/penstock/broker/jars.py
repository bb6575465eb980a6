"""Kafka's jars: a cache directory, filled once by the Ivy that PySpark contains.

There are two sets, each with its own directory: the broker's jars, and Kafka Streams for Java,
which the tests compare penstock with. A directory is complete or absent. Ivy downloads into a
temporary directory, which then moves into place in one step.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from penstock.broker.errors import BrokerError, JarsNotFound, JavaNotFound
from penstock.broker.repository import VARIABLE, ivy_settings, repository_url
from penstock.java import find_java

VERSION = "4.3.0"


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are downloaded together into one directory."""

    title: str
    folder: str
    #: The `dependency` elements of its `ivy.xml`.
    dependencies: str
    #: Prefix of the file name of the jar that must be among them.
    main_jar: str
    #: Approximate number and size of the jars, for the progress bar and messages.
    expected_jars: int
    megabytes: int

    @property
    def directory(self) -> Path:
        """The directory of the jars, which may not exist yet."""
        return cache_directory() / self.folder

    @property
    def is_fetched(self) -> bool:
        """Whether the jars are in the cache."""
        return self.directory.is_dir()

    def ivy_module(self) -> str:
        """Return the text of an `ivy.xml` that requests the jars."""
        return _MODULE.format(folder=self.folder, dependencies=self.dependencies)


_MODULE = """<ivy-module version="2.0">
  <info organisation="penstock" module="{folder}"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>{dependencies}</dependencies>
</ivy-module>
"""

# The tools come without their dependencies, which would include Kafka Connect.
BROKER = JarSet("Apache Kafka", "lib", f"""
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{VERSION}" conf="default->default"/>
    <dependency org="org.apache.kafka" name="kafka-tools" rev="{VERSION}" conf="default->default"
                transitive="false"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="1.7.36" conf="default->default"/>
""", "kafka_2.13-", 47, 45)

# The other dependencies of Kafka Streams are among the broker's jars, in the same versions.
STREAMS = JarSet("Kafka Streams for Java", "streams", f"""
    <dependency org="org.apache.kafka" name="kafka-streams" rev="{VERSION}" conf="default->default"
                transitive="false"/>
    <dependency org="org.rocksdb" name="rocksdbjni" rev="10.1.3" conf="default->default"
                transitive="false"/>
""", "kafka-streams-", 2, 75)

_FETCH_TIMEOUT_S = 900


def cache_directory() -> Path:
    """Return the directory of this version, in $PENSTOCK_CACHE or the user's cache directory."""
    override = os.environ.get("PENSTOCK_CACHE")
    root = Path(override) if override else platformdirs.user_cache_path("penstock", appauthor=False)
    return root / f"kafka-{VERSION}"


def java() -> str:
    """Return the path of the `java` program, or raise `JavaNotFound`."""
    return str(find_java("Kafka", JavaNotFound))


def class_path(on_jar: Callable[[str], None] | None = None) -> str:
    """Return the class path of the broker; downloads the jars if they are missing."""
    return _wildcard(BROKER, on_jar)


def streams_class_path(on_jar: Callable[[str], None] | None = None) -> str:
    """Return the class path of Kafka Streams for Java; downloads the jars if they are missing."""
    return os.pathsep.join(_wildcard(jar_set, on_jar) for jar_set in (BROKER, STREAMS))


def _wildcard(jar_set: JarSet, on_jar: Callable[[str], None] | None) -> str:
    if not jar_set.is_fetched:
        fetch(jar_set, on_jar)
    return f"{jar_set.directory}{os.sep}*"


def fetch(jar_set: JarSet, on_jar: Callable[[str], None] | None = None) -> Path:
    """Download the jars and replace those in the cache. Calls `on_jar` for each jar."""
    program = java()
    ivy = _ivy_jar()
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=cache) as name:
        scratch = Path(name)
        (scratch / "ivy.xml").write_text(jar_set.ivy_module(), encoding="utf-8")
        url = repository_url()
        (scratch / "ivysettings.xml").write_text(ivy_settings(url), encoding="utf-8")
        failure = _run_ivy([program, "-jar", str(ivy), *_ivy_arguments(scratch)], on_jar)
        if failure is not None:
            raise _download_error(jar_set, url, failure)
        if not any((scratch / "lib").glob(f"{jar_set.main_jar}*.jar")):
            raise JarsNotFound(
                f"Ivy succeeded but did not download {jar_set.title}. Delete the cache "
                f"'{cache}' and try again."
            )
        _move_into_place(scratch / "lib", jar_set.directory)
    return jar_set.directory


def _ivy_arguments(scratch: Path) -> list[str]:
    return [
        "-settings", str(scratch / "ivysettings.xml"), "-ivy", str(scratch / "ivy.xml"),
        "-cache", str(scratch / "ivy-cache"), "-confs", "default", "-types", "jar", "bundle",
        "-retrieve", f"{scratch / 'lib'}/[artifact]-[revision](-[classifier]).[ext]",
    ]


def _ivy_jar() -> Path:
    """Return the path of the Ivy in PySpark, without importing PySpark."""
    spec = importlib.util.find_spec("pyspark")
    locations = (spec.submodule_search_locations if spec is not None else None) or []
    for location in locations:
        for jar in sorted((Path(location) / "jars").glob("ivy-*.jar")):
            return jar
    raise BrokerError(
        "PySpark is not installed. penstock downloads Kafka with the Ivy that PySpark contains. "
        "Install it with `pip install 'penstock[spark]'`."
    )


def _run_ivy(
    command: list[str], on_jar: Callable[[str], None] | None
) -> list[str] | None:
    """Run Ivy. Return None on success, or the lines of its output."""
    lines: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            fetched = re.search(r"\[SUCCESSFUL\s*\] (\S+)", line)
            if fetched and on_jar is not None and ".jar" in line:
                on_jar(fetched[1])
        code = process.wait(_FETCH_TIMEOUT_S)
    return lines if code else None


def _download_error(jar_set: JarSet, url: str, output: list[str]) -> JarsNotFound:
    reasons = [line.strip() for line in output if re.search(r"ERROR|UNRESOLVED|FAILED", line)]
    detail = "\n  ".join(reasons[:8] or output[-8:])
    return JarsNotFound(
        f"{jar_set.title} {VERSION} is not in the cache, and the download from "
        f"{url or 'Maven Central'} failed.\n  {detail}\nConnect to the network once, or set "
        f"{VARIABLE} to a Maven repository that this machine can reach."
    )


def _move_into_place(new: Path, directory: Path) -> None:
    """Replace the directory. If another process has just done so, keep the jars of that process."""
    old = new.with_name("old")
    try:
        if directory.exists():
            directory.rename(old)
        new.rename(directory)
    except OSError:
        if not directory.is_dir():
            raise
