"""The two sets of jars are kept apart, and each is there whole or not at all."""

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
def test_all_that_ivy_is_asked_for_has_a_fixed_version(jar_set: jars.JarSet) -> None:
    asked = ElementTree.fromstring(jar_set.module()).findall("dependencies/dependency")
    assert any(f"{each.get('name')}-" == jar_set.main_jar for each in asked)
    for each in asked:
        assert "+" not in each.attrib["rev"]
        if each.get("org") == "org.apache.kafka":
            assert each.get("rev") == jars.VERSION


def test_the_broker_needs_only_its_own_jars(cache: Path) -> None:
    (cache / "lib").mkdir(parents=True)
    assert jars.class_path() == f"{cache / 'lib'}{os.sep}*"
    assert (jars.BROKER.is_fetched, jars.STREAMS.is_fetched) == (True, False)


def test_kafka_streams_needs_both_sets(cache: Path) -> None:
    (cache / "lib").mkdir(parents=True)
    (cache / "streams").mkdir()
    both = jars.streams_class_path().split(os.pathsep)
    assert both == [f"{cache / folder}{os.sep}*" for folder in ("lib", "streams")]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")
def test_a_set_that_cannot_be_fetched_is_named(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = (tmp_path / "empty").as_uri()
    monkeypatch.setenv("PENSTOCK_MAVEN_REPOSITORY", nowhere)
    message = f"Kafka Streams for Java {jars.VERSION} could not be fetched"
    with pytest.raises(JarsNotFound, match=message):
        jars.fetch(jars.STREAMS)
    assert list(cache.iterdir()) == []
