"""The Java that Spark would start is looked at before Spark is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock import ConfigException
from penstock.engine.spark.java import check_java


def a_java(folder: Path, version: str | None, says: str = "") -> dict[str, str]:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    if version is not None:
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return {"JAVA_HOME": str(folder)}


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.2", "25-ea"])
def test_a_java_that_is_new_enough_is_taken(version: str, tmp_path: Path) -> None:
    check_java(a_java(tmp_path / "jdk", version))


@pytest.mark.parametrize("version", ["11.0.22", "1.8.0_402", "16"])
def test_an_older_java_is_refused_by_name(version: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigException, match=f"Java 17 or newer.*JAVA_HOME is Java {version}"):
        check_java(a_java(tmp_path / "jdk", version))


def test_an_installation_that_does_not_say_is_asked(tmp_path: Path) -> None:
    check_java(a_java(tmp_path / "new", None, 'openjdk version "17.0.1" 2021-10-19'))
    with pytest.raises(ConfigException, match=r"1\.8\.0_402"):
        check_java(a_java(tmp_path / "old", None, 'java version "1.8.0_402"'))


def test_a_java_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigException, match="cannot be started"):
        check_java(a_java(tmp_path / "jdk", None, "Segmentation fault"))


def test_no_java_at_all_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigException, match=r"there is none.*Install a JDK"):
        check_java({"PATH": str(tmp_path)})


def test_a_java_home_that_leads_nowhere_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigException, match="JAVA_HOME names no Java"):
        check_java({"JAVA_HOME": str(tmp_path)})


def test_the_java_of_the_path_is_found(tmp_path: Path) -> None:
    a_java(tmp_path / "jdk", "11")
    with pytest.raises(ConfigException, match="the PATH is Java 11"):
        check_java({"PATH": os.pathsep.join((str(tmp_path), str(tmp_path / "jdk" / "bin")))})
