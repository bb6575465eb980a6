"""The two sets of jars have separate directories, each complete or absent."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from penstock.broker import jars
from penstock.broker.errors import JarsNotFound


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    return tmp_path / f"kafka-{jars.VERSION}"


@pytest.mark.parametrize("jar_set", [jars.BROKER, jars.STREAMS])
def test_all_dependencies_have_a_fixed_version(jar_set: jars.JarSet) -> None:
    requested = ElementTree.fromstring(jar_set.ivy_module()).findall("dependencies/dependency")
    assert any(f"{each.get('name')}-" == jar_set.main_jar for each in requested)
    for each in requested:
        assert "+" not in each.attrib["rev"]
        if each.get("org") == "org.apache.kafka":
            assert each.get("rev") == jars.VERSION


def test_class_path_of_the_broker_contains_only_its_jars(cache: Path) -> None:
    (cache / "lib").mkdir(parents=True)
    assert jars.class_path() == f"{cache / 'lib'}{os.sep}*"
    assert (jars.BROKER.is_fetched, jars.STREAMS.is_fetched) == (True, False)


def test_class_path_of_kafka_streams_contains_both_sets(cache: Path) -> None:
    (cache / "lib").mkdir(parents=True)
    (cache / "streams").mkdir()
    both = jars.streams_class_path().split(os.pathsep)
    assert both == [f"{cache / folder}{os.sep}*" for folder in ("lib", "streams")]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")
def test_failed_download_names_the_jars(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = (tmp_path / "empty").as_uri()
    monkeypatch.setenv("PENSTOCK_MAVEN_REPOSITORY", nowhere)
    message = f"Kafka Streams for Java {jars.VERSION} is not in the cache, and the download from"
    with pytest.raises(JarsNotFound, match=message):
        jars.fetch(jars.STREAMS)
    assert list(cache.iterdir()) == []
