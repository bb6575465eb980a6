"""Compiles and runs the Java programs of tests/kafka/java.

The tests and the benchmarks run them beside penstock, on the same broker. They need a JDK and the
jars of Kafka Streams, which are downloaded if they are missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from penstock.broker import jars

SOURCES = Path(__file__).parent / "java"
_COMPILE_TIMEOUT_S = 120


def javac() -> str | None:
    """The Java compiler: that of JAVA_HOME, or the first on the PATH; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    if home and (program := Path(home) / "bin" / "javac").is_file():
        return str(program)
    return shutil.which("javac")


def compile_programs(classes: Path) -> str:
    """Compile the programs into a directory. Returns the class path to run them with."""
    program = javac()
    if program is None:
        raise FileNotFoundError("javac was not found. Install a JDK and add it to the PATH.")
    class_path = jars.streams_class_path()
    classes.mkdir(parents=True, exist_ok=True)
    ran = subprocess.run(
        [program, "-Xlint:all", "-Werror", "-d", str(classes), "-cp", class_path,
         *map(str, sorted(SOURCES.glob("*.java")))],
        capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=False,
    )
    if ran.returncode:
        raise RuntimeError(f"The Java programs do not compile.\n{ran.stderr}")
    return os.pathsep.join((str(classes), class_path))


def command(
    class_path: str, main: str, *arguments: str, flags: Sequence[str] = ()
) -> list[str]:
    """Return the command line that runs a program. `flags` are options of java itself."""
    return [
        jars.java(), *flags, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        "-cp", class_path, main, *arguments,
    ]
