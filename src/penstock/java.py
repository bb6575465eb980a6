"""Finds the Java runtime that Spark and Kafka's broker need, and checks its version."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

OLDEST_JAVA = 17

_RELEASE_FILE = re.compile(r'JAVA_VERSION="([^"]+)"')
_VERSION_OUTPUT = re.compile(r'version "([^"]+)"')
_ADVICE = (
    "Install a JDK (Debian and Ubuntu: apt install openjdk-17-jre-headless; macOS: brew install "
    "openjdk@17). If it is not on the PATH, set JAVA_HOME."
)


def find_java(
    product: str, error: Callable[[str], Exception], environment: Mapping[str, str] = os.environ
) -> Path:
    """Return the `java` program of JAVA_HOME, or the first on the PATH.

    If none exists, or it is too old for `product`, raise `error` with a message.
    """
    java, origin = _locate(product, error, environment)
    version = _version(java)
    if version is None:
        raise error(f"The Java of {origin} does not start: {java}. {_ADVICE}")
    if _major(version) < OLDEST_JAVA:
        raise error(
            f"{product} needs Java {OLDEST_JAVA} or newer. {origin} has Java {version}: {java}. "
            f"{_ADVICE}"
        )
    return java


def _locate(
    product: str, error: Callable[[str], Exception], environment: Mapping[str, str]
) -> tuple[Path, str]:
    home = environment.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        if java.is_file():
            return java, "JAVA_HOME"
        raise error(
            f"JAVA_HOME is wrong: {java} does not exist. Correct JAVA_HOME, or unset it to use the "
            "'java' on the PATH."
        )
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found is None:
        raise error(
            f"{product} needs Java {OLDEST_JAVA} or newer. JAVA_HOME is not set, and 'java' is not "
            f"on the PATH. {_ADVICE}"
        )
    return Path(found), "the PATH"


def _version(java: Path) -> str | None:
    """Read the version from the installation's release file, which is faster than to run it."""
    release = java.resolve().parents[1] / "release"
    try:
        found = _RELEASE_FILE.search(release.read_text(encoding="utf-8", errors="replace"))
        if found:
            return found[1]
    except OSError:
        pass
    try:
        finished = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION_OUTPUT.search(finished.stderr + finished.stdout)
    return None if found is None else found[1]


def _major(version: str) -> int:
    """Return 17 for '17.0.15', and 8 for '1.8.0_402'."""
    numbers = [int(part) for part in re.findall(r"\d+", version)]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
