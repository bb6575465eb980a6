"""Kafka's jars: kept in a cache folder, fetched there once with the Ivy that pyspark brings.

There are two sets, each in a folder of its own: what a broker needs, and Kafka Streams for Java,
with which penstock is compared. A folder is complete or not there: jars are fetched beside it and
moved in one step, so a fetch that was interrupted leaves nothing that looks whole.
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
from penstock.broker.repository import VARIABLE, ivy_settings, repository
from penstock.java import find_java

VERSION = "4.3.0"


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are fetched together and kept in one folder."""

    what: str
    folder: str
    #: What Ivy is asked for: the `dependency` elements.
    dependencies: str
    #: The beginning of the name of the jar without which the others are worth nothing.
    main_jar: str
    #: About so many jars and megabytes; for a progress bar and a note only.
    expected_jars: int
    megabytes: int

    @property
    def place(self) -> Path:
        """Where its jars are, or will be."""
        return cache_folder() / self.folder

    @property
    def is_fetched(self) -> bool:
        """Whether its jars are here."""
        return self.place.is_dir()

    def module(self) -> str:
        """The text of an `ivy.xml` that asks for it."""
        return _MODULE.format(folder=self.folder, dependencies=self.dependencies)


_MODULE = """<ivy-module version="2.0">
  <info organisation="penstock" module="{folder}"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>{dependencies}</dependencies>
</ivy-module>
"""

# The tools are taken without what they depend on: the rest of that is Kafka Connect.
BROKER = JarSet("Apache Kafka", "lib", f"""
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{VERSION}" conf="default->default"/>
    <dependency org="org.apache.kafka" name="kafka-tools" rev="{VERSION}" conf="default->default"
                transitive="false"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="1.7.36" conf="default->default"/>
""", "kafka_2.13-", 47, 45)

# All else that Kafka Streams depends on is among the broker's jars, in the same versions.
STREAMS = JarSet("Kafka Streams for Java", "streams", f"""
    <dependency org="org.apache.kafka" name="kafka-streams" rev="{VERSION}" conf="default->default"
                transitive="false"/>
    <dependency org="org.rocksdb" name="rocksdbjni" rev="10.1.3" conf="default->default"
                transitive="false"/>
""", "kafka-streams-", 2, 75)

_FETCH_TIMEOUT_S = 900


def cache_folder() -> Path:
    """Return the folder for the jars of this version: under $PENSTOCK_CACHE or the user's cache."""
    override = os.environ.get("PENSTOCK_CACHE")
    root = Path(override) if override else platformdirs.user_cache_path("penstock", appauthor=False)
    return root / f"kafka-{VERSION}"


def java() -> str:
    """Return the path of the `java` program, or raise `JavaNotFound`."""
    return str(find_java("Kafka", JavaNotFound))


def class_path(on_jar: Callable[[str], None] | None = None) -> str:
    """What java needs to find Kafka; fetches the jars if they are not here yet."""
    return _wildcard(BROKER, on_jar)


def streams_class_path(on_jar: Callable[[str], None] | None = None) -> str:
    """What java and javac need to find Kafka Streams; fetches what is not here yet."""
    return os.pathsep.join(_wildcard(jar_set, on_jar) for jar_set in (BROKER, STREAMS))


def _wildcard(jar_set: JarSet, on_jar: Callable[[str], None] | None) -> str:
    if not jar_set.is_fetched:
        fetch(jar_set, on_jar)
    return f"{jar_set.place}{os.sep}*"


def fetch(jar_set: JarSet, on_jar: Callable[[str], None] | None = None) -> Path:
    """Fetch the jars, whether they are here or not; `on_jar` is told each one."""
    program = java()
    ivy = _ivy_jar()
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder) as scratch:
        place = Path(scratch)
        (place / "ivy.xml").write_text(jar_set.module(), encoding="utf-8")
        address = repository()
        (place / "ivysettings.xml").write_text(ivy_settings(address), encoding="utf-8")
        lines = _run_ivy([program, "-jar", str(ivy), *_arguments(place)], on_jar)
        if lines is not None:
            raise _not_fetched(jar_set, address, lines)
        if not any((place / "lib").glob(f"{jar_set.main_jar}*.jar")):
            raise JarsNotFound(
                f"Ivy ended well, but fetched no {jar_set.what}. Remove the cache and try again."
            )
        _replace(place / "lib", jar_set.place)
    return jar_set.place


def _arguments(place: Path) -> list[str]:
    return [
        "-settings", str(place / "ivysettings.xml"), "-ivy", str(place / "ivy.xml"),
        "-cache", str(place / "ivy-cache"), "-confs", "default", "-types", "jar", "bundle",
        "-retrieve", f"{place / 'lib'}/[artifact]-[revision](-[classifier]).[ext]",
    ]


def _ivy_jar() -> Path:
    """The Ivy inside pyspark; pyspark is looked for, not imported."""
    spec = importlib.util.find_spec("pyspark")
    places = (spec.submodule_search_locations if spec is not None else None) or []
    for place in places:
        for jar in sorted((Path(place) / "jars").glob("ivy-*.jar")):
            return jar
    raise BrokerError(
        "PySpark is not installed. penstock downloads Kafka with the Ivy that PySpark contains. "
        "Install it with `pip install 'penstock[spark]'`."
    )


def _run_ivy(
    command: list[str], on_jar: Callable[[str], None] | None
) -> list[str] | None:
    """Run it; answers what it said if it failed."""
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


def _not_fetched(jar_set: JarSet, address: str, lines: list[str]) -> JarsNotFound:
    reasons = [line.strip() for line in lines if re.search(r"ERROR|UNRESOLVED|FAILED", line)]
    said = "\n  ".join(reasons[:8] or lines[-8:])
    return JarsNotFound(
        f"{jar_set.what} {VERSION} could not be fetched from {address or 'Maven Central'}, and it "
        f"is not in the cache.\n  {said}\nGo online once, or set {VARIABLE} to a Maven "
        "repository that can be reached."
    )


def _replace(new: Path, place: Path) -> None:
    """Put the folder in its place; if another process was faster, its jars are as good."""
    old = new.with_name("old")
    try:
        if place.exists():
            place.rename(old)
        new.rename(place)
    except OSError:
        if not place.is_dir():
            raise
