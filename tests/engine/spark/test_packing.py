"""What cannot be sent to workers is named: the step, the function, what it holds."""

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

from engine.harness import config_of
from penstock import StreamsBuilder, Topology, TopologyException
from penstock.engine.layout.execution_graph import build_graph_for_log
from penstock.engine.packaging.bundle import Bundle
from penstock.engine.packaging.pack import pack
from penstock.engine.packaging.pickling import pickle_by_value
from penstock.log import open_log


def bundle_of(topology: Topology, folder: Path, **settings: Any) -> Bundle:
    with closing(open_log(folder / "log.db")) as log:
        for topic in ("in", "out"):
            log.create_topic(topic)
        config = config_of(**settings)
        return Bundle(topology, config, build_graph_for_log(log, topology, config), log.address, 1)


def mapped(function: Any) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").map_values(function, name="shout").to("out")
    return builder.build()


def refusal(topology: Topology, folder: Path, **settings: Any) -> str:
    with pytest.raises(TopologyException) as caught:
        pack(bundle_of(topology, folder, **settings))
    return str(caught.value)


def test_a_lock_in_a_closure_is_named_with_its_function(tmp_path: Path) -> None:
    lock = threading.Lock()

    def guarded(value: str) -> str:
        with lock:
            return value

    told = refusal(mapped(guarded), tmp_path)
    line = guarded.__code__.co_firstlineno
    assert told.startswith("The step 'shout' cannot be sent to Spark's workers.")
    assert f"guarded (test_packing.py:{line}) uses 'lock', a _thread.lock" in told
    assert "context.resource" in told


def test_what_hides_in_a_partial_in_a_dictionary_is_found(tmp_path: Path) -> None:
    kept = {"deep": [threading.Lock()]}

    def look(kept: Any, value: str) -> str:
        return value

    told = refusal(mapped(functools.partial(look, kept)), tmp_path)
    assert "It holds a _thread.lock, which cannot be pickled" in told


def test_a_setting_that_cannot_travel_is_named(tmp_path: Path) -> None:
    told = refusal(mapped(str.upper), tmp_path, extra={"lock": threading.Lock()})
    assert told.startswith("The setting extra cannot be sent to Spark's workers.")


def test_functions_of_a_file_that_was_run_by_its_path_travel_whole(tmp_path: Path) -> None:
    module = ModuleType("an_app_of_mine")
    exec("SUFFIX = '!'\ndef shout(value):\n    return value.upper() + SUFFIX", module.__dict__)
    sys.modules["an_app_of_mine"] = module
    try:
        pickle_by_value(module)
        data = pack(bundle_of(mapped(module.shout), tmp_path))
    finally:
        cloudpickle.unregister_pickle_by_value(module)
        del sys.modules["an_app_of_mine"]
    assert Bundle.load(data).topology.node("shout") is not None
