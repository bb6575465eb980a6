"""Settings that shape a topology take effect, or are refused where it is too late for them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    ConfigException,
    ProcessorWrapper,
    Serdes,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    Topology,
    TopologyConfig,
    TopologyException,
)
from penstock.log import Log
from penstock.testing import TopologyTestDriver
from penstock.topology_config import building_with

TEXT = Serdes.string()
BUILD = '''
from penstock import Serdes, StreamsBuilder, StreamsConfig

config = StreamsConfig(application_id="app")
text = Serdes.string()

def rows(*given):
    builder = StreamsBuilder(*given)
    builder.table("rows", key=text, value=text, store="rows").to_stream().to("out")
    return builder
'''
#: How a file can define its topology so that it is built with the configuration of the run.
DEFINITIONS = {
    "a function that builds": "def topology(): return rows().build()",
    "a function that uses the configuration of the file": (
        "def topology(): return rows(config).build()"
    ),
    "a function that returns a builder": "def topology(): return rows()",
    "a builder": "builder = rows()",
    "a builder with the configuration of the file": "builder = rows(config)",
}
BUILT = "topology = rows().build()"
OPTIMIZED = ("--set", "topology.optimization=all")
Penstock = Callable[..., Any]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("shaped", None)


@pytest.mark.parametrize("definition", DEFINITIONS.values(), ids=DEFINITIONS)
def test_optimizations_of_the_command_line_apply(
    penstock: Penstock, log: Log, definition: str
) -> None:
    Path("shaped.py").write_text(f"{BUILD}\n{definition}\n")
    log.create_topic("rows")
    log.create_topic("out")
    result = penstock("run", "shaped.py", "--once", "--master", "inline", "--quiet", *OPTIMIZED)
    assert result.code == 0, result.err
    # The source topic serves as the changelog of the table.
    assert "app-rows-changelog" not in {topic.name for topic in log.topics()}


@pytest.mark.parametrize("definition", DEFINITIONS.values(), ids=DEFINITIONS)
def test_generated_names_are_refused_if_the_command_line_says_so(
    penstock: Penstock, definition: str
) -> None:
    Path("shaped.py").write_text(BUILD.replace(', store="rows"', "") + definition)
    result = penstock("describe", "shaped.py", "--set",
                      "ensure.explicit.internal.resource.naming=true")
    assert result.code == 1
    assert "names were generated: store rows-STATE-STORE-0000000000" in result.err


@pytest.mark.parametrize("definition", DEFINITIONS.values(), ids=DEFINITIONS)
def test_processor_wrapper_of_the_command_line_is_used(
    penstock: Penstock, definition: str
) -> None:
    Path("shaped.py").write_text(f'''{BUILD}
from penstock import ProcessorWrapper

class Refusing(ProcessorWrapper):
    def wrap_processor_supplier(self, name, supplier):
        raise ValueError("the wrapper was called")

{definition}
''')
    result = penstock("describe", "shaped.py", "--set", "processor.wrapper.class=shaped.Refusing")
    assert result.code == 1
    assert "the wrapper was called" in result.err


def test_built_topology_refuses_settings_of_the_builder(penstock: Penstock, log: Log) -> None:
    Path("shaped.py").write_text(f"{BUILD}\n{BUILT}\n")
    for command in (("describe", "shaped.py"), ("run", "shaped.py", "--master", "inline",
                                               "--create-topics", "1")):
        result = penstock(*command, *OPTIMIZED)
        assert result.code == 1
        assert "topology.optimization has no effect on a topology that is built" in result.err
        assert "build the topology in a function" in result.err


def test_describe_uses_the_configuration_of_the_file(penstock: Penstock) -> None:
    source = '''
from penstock import Serdes, StreamsBuilder
config = {"topology.optimization": "all"}
text = Serdes.string()
def topology():
    builder = StreamsBuilder()
    stream = builder.stream("in", key=text, value=text).select_key(lambda key, value: value)
    for name in ("a", "b"):
        stream.group_by_key(key=text, value=text, name=name).count(store=name)
    return builder.build()
'''
    Path("shaped.py").write_text(source)
    optimized = json.loads(penstock("describe", "shaped.py", "--json").out)
    plain = json.loads(penstock("describe", "shaped.py", "--json", "--set",
                                "topology.optimization=none").out)
    assert count_sinks(optimized) == 1
    assert count_sinks(plain) == 2


def count_sinks(description: dict[str, Any]) -> int:
    return sum(
        node["kind"] == "sink" for part in description["subtopologies"] for node in part["nodes"]
    )


# ---- in Python -------------------------------------------------------------------------------


def build(config: StreamsConfig | TopologyConfig | None = None, **table: Any) -> Topology:
    builder = StreamsBuilder(config)
    builder.table("rows", key=TEXT, value=TEXT, **table).to_stream().to("out")
    return builder.build()


CONFIG = StreamsConfig(application_id="app", log="never-opened.db")
LATE: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"topology_optimization": "all"}, ConfigException, "topology.optimization has no effect"),
    ({"processor_wrapper": ProcessorWrapper}, ConfigException, "processor.wrapper.class has no"),
    ({"ensure_explicit_internal_resource_naming": True}, TopologyException, "were generated"),
]


@pytest.mark.parametrize(("settings", "kind", "message"), LATE)
def test_streams_and_driver_refuse_settings_that_come_too_late(
    settings: dict[str, Any], kind: type[Exception], message: str
) -> None:
    config = CONFIG.with_(**settings)
    with pytest.raises(kind, match=message):
        Streams(build(), config, master="inline")
    with pytest.raises(kind, match=message):
        TopologyTestDriver(build(), config)


@pytest.mark.parametrize("settings", [settings for settings, _, _ in LATE])
def test_settings_that_the_builder_had_are_accepted(settings: dict[str, Any]) -> None:
    config = CONFIG.with_(**settings)
    topology = build(config, store="rows", name="rows")
    Streams(topology, config, master="inline")
    TopologyTestDriver(topology, config).close()


def test_processor_api_topology_has_nothing_to_optimize() -> None:
    topology = Topology().add_source("source", "in").add_sink("sink", "out", "source")
    config = CONFIG.with_(
        topology_optimization="all", default_key_serde=TEXT, default_value_serde=TEXT
    )
    TopologyTestDriver(topology, config).close()


def test_builders_use_the_configuration_of_the_enclosing_block() -> None:
    run_config = CONFIG.with_(topology_optimization="all")
    other = CONFIG.with_(client_id="other")
    with building_with(run_config, instead_of=CONFIG):
        assert Topology().config is run_config
        assert Topology(CONFIG).config is run_config
        assert Topology(other).config is other
        overridden = Topology(TopologyConfig(CONFIG, {"max.task.idle.ms": 5})).config
        assert build(other).config is other
    assert overridden is not None
    assert overridden.topology_optimization == run_config.topology_optimization
    assert overridden.max_task_idle_ms == 5
    assert Topology().config is None
