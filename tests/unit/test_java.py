"""The Java runtime is found and checked before a JVM is started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.broker.errors import JavaNotFound
from penstock.errors import ConfigException
from penstock.java import find_java


def install_java(folder: Path, version: str | None, output: str = "") -> dict[str, str]:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{output}' >&2\n")
    java.chmod(0o755)
    if version is not None:
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return {"JAVA_HOME": str(folder)}


def find(environment: dict[str, str]) -> Path:
    return find_java("Spark", ConfigException, environment)


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.2", "25-ea"])
def test_supported_java_is_accepted(version: str, tmp_path: Path) -> None:
    found = find(install_java(tmp_path / "jdk", version))
    assert found == tmp_path / "jdk" / "bin" / "java"


@pytest.mark.parametrize("version", ["11.0.22", "1.8.0_402", "16"])
def test_older_java_is_rejected_with_its_version(version: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigException, match=f"Java 17 or newer. JAVA_HOME has Java {version}"):
        find(install_java(tmp_path / "jdk", version))


def test_installation_without_a_release_file_is_run_for_its_version(tmp_path: Path) -> None:
    find(install_java(tmp_path / "new", None, 'openjdk version "17.0.1" 2021-10-19'))
    with pytest.raises(ConfigException, match=r"1\.8\.0_402"):
        find(install_java(tmp_path / "old", None, 'java version "1.8.0_402"'))


def test_java_that_does_not_start_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigException, match="does not start"):
        find(install_java(tmp_path / "jdk", None, "Segmentation fault"))


def test_missing_java_is_reported_with_advice(tmp_path: Path) -> None:
    with pytest.raises(ConfigException, match=r"'java' is not on the PATH.*Install a JDK"):
        find({"PATH": str(tmp_path)})


def test_wrong_java_home_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigException, match="JAVA_HOME is wrong"):
        find({"JAVA_HOME": str(tmp_path)})


def test_java_on_the_path_is_found(tmp_path: Path) -> None:
    install_java(tmp_path / "jdk", "11")
    with pytest.raises(ConfigException, match="the PATH has Java 11"):
        find({"PATH": os.pathsep.join((str(tmp_path), str(tmp_path / "jdk" / "bin")))})


def test_error_names_the_product_that_needs_java(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFound, match=r"^Kafka needs Java 17 or newer\."):
        find_java("Kafka", JavaNotFound, {"PATH": str(tmp_path)})
