"""The Java that Spark would start: there is one, and it is new enough, or a clear error."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import ConfigException

OLDEST = 17
_RELEASE = re.compile(r'JAVA_VERSION="([^"]+)"')
_SAID = re.compile(r'version "([^"]+)"')
_INSTALL = (
    "Install a JDK (Debian and Ubuntu: apt install openjdk-17-jre-headless; macOS: brew install "
    "openjdk@17) and let JAVA_HOME name it, if it is not on the PATH."
)


def check_java(environment: Mapping[str, str] = os.environ) -> None:
    """Raise `ConfigException` unless Spark would find a Java that it can run on."""
    java, where = _find_java(environment)
    version = _version(java)
    if version is None:
        raise ConfigException(f"The Java of {where} cannot be started: {java}. {_INSTALL}")
    if _major(version) < OLDEST:
        raise ConfigException(
            f"Spark needs Java {OLDEST} or newer, and {where} is Java {version}: {java}. {_INSTALL}"
        )


def _find_java(environment: Mapping[str, str]) -> tuple[Path, str]:
    home = environment.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        if java.is_file():
            return java, "JAVA_HOME"
        raise ConfigException(
            f"JAVA_HOME names no Java: there is no {java}. Correct it, or unset it to use the "
            "'java' on the PATH."
        )
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found is None:
        raise ConfigException(
            f"Spark needs Java {OLDEST} or newer, and there is none: JAVA_HOME is not set, and "
            f"'java' is not on the PATH. {_INSTALL}"
        )
    return Path(found), "the PATH"


def _version(java: Path) -> str | None:
    """What the installation says about itself; it is asked by running it only if need be."""
    release = java.resolve().parents[1] / "release"
    try:
        found = _RELEASE.search(release.read_text(encoding="utf-8", errors="replace"))
        if found:
            return found[1]
    except OSError:
        pass
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _SAID.search(said.stderr + said.stdout)
    return None if found is None else found[1]


def _major(version: str) -> int:
    """17 of '17.0.15', and 8 of '1.8.0_402'."""
    numbers = [int(part) for part in re.findall(r"\d+", version)]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
