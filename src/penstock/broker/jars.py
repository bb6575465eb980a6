"""Kafka's jars: kept in a cache folder, fetched there once with the Ivy that pyspark brings.

The folder is complete or not there: jars are fetched beside it and moved in one step, so a fetch
that was interrupted leaves nothing that looks whole.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from penstock.broker.errors import BrokerError, NoJars, NoJava
from penstock.broker.repository import VARIABLE, ivy_settings, repository

VERSION = "4.3.0"
#: About so many jars; for a progress bar only.
EXPECTED_JARS = 47

# The tools are taken without what they depend on: the rest of that is Kafka Connect.
_MODULES = f"""<ivy-module version="2.0">
  <info organisation="penstock" module="broker"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{VERSION}" conf="default->default"/>
    <dependency org="org.apache.kafka" name="kafka-tools" rev="{VERSION}" conf="default->default"
                transitive="false"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="1.7.36" conf="default->default"/>
  </dependencies>
</ivy-module>
"""
_FETCH_TIMEOUT_S = 900


def cache_folder() -> Path:
    """Where the jars of this version are kept: $PENSTOCK_CACHE, or the user's cache folder."""
    given = os.environ.get("PENSTOCK_CACHE")
    if given:
        root = Path(given)
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
    return root / f"kafka-{VERSION}"


def java() -> str:
    """The java program: that of JAVA_HOME, or the first on the PATH."""
    home = os.environ.get("JAVA_HOME")
    if home and (program := Path(home) / "bin" / "java").is_file():
        return str(program)
    found = shutil.which("java")
    if found is None:
        raise NoJava
    return found


def check_java(program: str) -> None:
    """Raise `NoJava` if it is too old for Kafka."""
    try:
        told = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=60, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoJava(program) from error
    version = re.search(r'version "(?:1\.)?(\d+)', told)
    if version is not None and int(version[1]) < 17:
        raise NoJava(f"{program}, version {version[1]},")


def class_path(on_jar: Callable[[str], None] | None = None) -> str:
    """What java needs to find Kafka; fetches the jars if they are not here yet."""
    folder = cache_folder() / "lib"
    if not folder.is_dir():
        fetch(on_jar)
    return f"{folder}{os.sep}*"


def is_fetched() -> bool:
    """Whether the jars are here."""
    return (cache_folder() / "lib").is_dir()


def fetch(on_jar: Callable[[str], None] | None = None) -> Path:
    """Fetch the jars, whether they are here or not; `on_jar` is told each one."""
    program = java()
    ivy = _ivy_jar()
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder) as scratch:
        place = Path(scratch)
        (place / "ivy.xml").write_text(_MODULES, encoding="utf-8")
        address = repository()
        (place / "ivysettings.xml").write_text(ivy_settings(address), encoding="utf-8")
        _run_ivy([program, "-jar", str(ivy), *_arguments(place)], address, on_jar)
        if not any((place / "lib").glob("kafka_2.13-*.jar")):
            raise NoJars("Ivy ended well, but fetched no Kafka. Remove the cache and try again.")
        _replace(place / "lib", folder / "lib")
    return folder / "lib"


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
        "Kafka's jars are fetched with the Ivy inside pyspark, and there is none. "
        "Install pyspark."
    )


def _run_ivy(
    command: list[str], address: str, on_jar: Callable[[str], None] | None
) -> None:
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
    if code:
        reasons = [line.strip() for line in lines if re.search(r"ERROR|UNRESOLVED|FAILED", line)]
        said = "\n  ".join(reasons[:8] or lines[-8:])
        raise NoJars(
            f"Kafka {VERSION} could not be fetched from {address or 'Maven Central'}, and it is "
            f"not in the cache.\n  {said}\nGo online once, or set {VARIABLE} to a Maven "
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
