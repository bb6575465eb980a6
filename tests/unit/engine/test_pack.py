"""The error for an application that cannot be pickled names the object that is the reason."""

from __future__ import annotations

import functools
import sys
import threading
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

from penstock import StreamsBuilder, StreamsConfig, Topology, TopologyException
from penstock.engine.layout.execution_graph import build_graph_for_log
from penstock.engine.packaging.bundle import Bundle
from penstock.engine.packaging.pack import pack_bundle
from penstock.engine.packaging.pickling import pickle_by_value
from penstock.log import open_log


def bundle_of(topology: Topology, folder: Path, **settings: Any) -> Bundle:
    config = StreamsConfig(application_id="app", **settings)
    with closing(open_log(folder / "log.db")) as log:
        for topic in ("in", "out"):
            log.create_topic(topic)
        return Bundle(topology, config, build_graph_for_log(log, topology, config), log.address, 1)


def mapping(function: Any) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").map_values(function, name="shout").to("out")
    return builder.build()


def error_of(topology: Topology, folder: Path, **settings: Any) -> str:
    with pytest.raises(TopologyException) as caught:
        pack_bundle(bundle_of(topology, folder, **settings))
    return str(caught.value)


def test_lock_in_a_closure_is_named_with_its_function(tmp_path: Path) -> None:
    lock = threading.Lock()

    def guarded(value: str) -> str:
        with lock:
            return value

    error = error_of(mapping(guarded), tmp_path)
    line = guarded.__code__.co_firstlineno
    assert error.startswith("The step 'shout' cannot be sent to Spark's workers.")
    assert f"guarded (test_pack.py:{line}) uses 'lock', a _thread.lock" in error
    assert "context.resource" in error


def test_object_inside_a_partial_and_a_dictionary_is_found(tmp_path: Path) -> None:
    held = {"deep": [threading.Lock()]}

    def look(held: Any, value: str) -> str:
        return value

    error = error_of(mapping(functools.partial(look, held)), tmp_path)
    assert "It holds a _thread.lock, which cannot be pickled" in error


def test_setting_that_cannot_be_pickled_is_named(tmp_path: Path) -> None:
    error = error_of(mapping(str.upper), tmp_path, extra={"lock": threading.Lock()})
    assert error.startswith("The setting extra cannot be sent to Spark's workers.")


def test_functions_of_a_file_that_was_started_by_path_are_pickled_by_value(
    tmp_path: Path,
) -> None:
    module = ModuleType("an_app_of_mine")
    exec("SUFFIX = '!'\ndef shout(value):\n    return value.upper() + SUFFIX", module.__dict__)
    sys.modules["an_app_of_mine"] = module
    try:
        pickle_by_value(module)
        data = pack_bundle(bundle_of(mapping(module.shout), tmp_path))
    finally:
        cloudpickle.unregister_pickle_by_value(module)
        del sys.modules["an_app_of_mine"]
    assert Bundle.load(data).topology.node("shout") is not None
