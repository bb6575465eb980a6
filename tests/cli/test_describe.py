from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

APP = '''
from neighbour import IN
from penstock import StreamsBuilder, Topology

def topology() -> Topology:
    builder = StreamsBuilder()
    builder.stream(IN).to("out")
    return builder.build()

def other() -> Topology:
    builder = StreamsBuilder()
    builder.table("t", store="rows")
    return builder.build()

class Holder:
    builder = StreamsBuilder()
    builder.stream("held").to("out")

number = 7

def broken() -> Topology:
    return 1 / 0

def wants(argument) -> Topology:
    pass

if __name__ == "__main__":
    raise SystemExit("not to be run")
'''
TEXT = """Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [in])
      --> KSTREAM-SINK-0000000001
    Sink: KSTREAM-SINK-0000000001 (topic: out)
      <-- KSTREAM-SOURCE-0000000000
"""


@pytest.fixture(autouse=True)
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "neighbour.py").write_text('IN = "in"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if not name.startswith("penstock"):
            del sys.modules[name]


@pytest.mark.parametrize("target", ["app.py", "app.py:topology", "app:topology", "app", "./app.py"])
def test_description_has_kafkas_format(penstock, target: str) -> None:
    assert penstock("describe", target) == (0, TEXT, "")


def test_describe_needs_no_log(penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_LOG")
    assert penstock("describe", "app.py").code == 0


def test_builder_and_dotted_name_are_accepted(penstock) -> None:
    assert "topics: [held]" in penstock("describe", "app.py:Holder.builder").out


def test_json_contains_all_nodes(penstock) -> None:
    found = json.loads(penstock("describe", "app.py:other", "--json").out)
    (part,) = found["subtopologies"]
    assert [(node["kind"], node["name"]) for node in part["nodes"]] == [
        ("source", "KSTREAM-SOURCE-0000000000"), ("processor", "KTABLE-SOURCE-0000000001"),
    ]
    assert part["nodes"][0]["topics"] == ["t"]
    assert part["nodes"][1]["stores"] == ["rows"]
    assert found["global_stores"] == []


@pytest.mark.parametrize(("target", "message"), [
    ("app.py:missing",
     "'missing' does not exist in 'app.py'. Topologies: topology, other, broken, wants."),
    ("app.py:number", "'app.py:number' has the type int. It must be a Topology"),
    ("app.py:wants", "wants() in 'app.py' failed with TypeError"),
    ("nothing.py", "The file 'nothing.py' does not exist."),
    ("nothing", "The module 'nothing' does not exist in this directory"),
    ("app.nothing:x", "The module 'app.nothing' does not exist"),
])
def test_invalid_target_fails(penstock, target: str, message: str) -> None:
    ran = penstock("describe", target)
    assert (ran.code, ran.out) == (1, "")
    assert message in ran.err
    assert "Traceback" not in ran.err


def test_error_in_user_code_names_file_and_line(penstock, tmp_path: Path) -> None:
    line = APP.splitlines().index("    return 1 / 0") + 1
    ran = penstock("describe", "app.py:broken")
    assert (ran.code, ran.err) == (
        1,
        "penstock: error: broken() in 'app.py' failed with ZeroDivisionError: division by zero "
        f"({tmp_path / 'app.py'}, line {line})\n",
    )
    assert "Traceback" in penstock("describe", "app.py:broken", "--debug").err
    for text in ("import nowhere_to_be_found", "x = = 1", "raise SystemExit(3)"):
        (tmp_path / "bad.py").write_text(text)
        ran = penstock("describe", "bad.py")
        assert (ran.code, ran.err.count("\n")) == (1, 1), ran.err
        assert "'bad.py' failed with " in ran.err


def test_error_raised_by_penstock_names_the_users_line(penstock, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "from penstock import Serdes, StreamsBuilder\n"
        "builder = StreamsBuilder()\n"
        "builder.stream('in', key=Serdes.string)\n"
    )
    ran = penstock("describe", "bad.py")
    assert ran.code == 1
    assert ran.err.endswith(f"({tmp_path / 'bad.py'}, line 3)\n")


def test_file_without_a_topology_fails_with_advice(penstock, tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("")
    assert penstock("describe", "empty.py") == (1, "", (
        "penstock: error: 'empty.py' has no topology. Define a StreamsBuilder or a Topology at "
        "its top level, or a function topology() that returns one. For a function with another "
        "name use empty.py:NAME.\n"
    ))


def test_one_of_several_topologies_must_be_named(penstock, tmp_path: Path) -> None:
    text = "from penstock import StreamsBuilder\na = StreamsBuilder()\na.stream('x').to('y')\n"
    (tmp_path / "one.py").write_text(text)
    assert "topics: [x]" in penstock("describe", "one.py").out
    (tmp_path / "two.py").write_text(text + "b = StreamsBuilder()\n")
    ran = penstock("describe", "two.py")
    message = "'two.py' has several topologies. Use two.py:NAME. Topologies: a, b."
    assert (ran.code, message in ran.err) == (1, True)


def test_b15_unknown_name_lists_functions_with_a_default_name(penstock, tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(
        "from penstock import StreamsBuilder\n"
        "def topology():\n"
        "    builder = StreamsBuilder()\n"
        "    builder.stream('x').to('y')\n"
        "    return builder.build()\n"
    )
    assert "topics: [x]" in penstock("describe", "made.py").out
    ran = penstock("describe", "made.py:nope")
    assert "'nope' does not exist in 'made.py'. Topologies: topology." in ran.err


def test_file_in_a_package_can_import_the_package(penstock, tmp_path: Path) -> None:
    shop = tmp_path / "elsewhere" / "shop"
    (shop / "parts").mkdir(parents=True)
    for folder in (shop, shop / "parts"):
        (folder / "__init__.py").write_text("")
    (shop / "names.py").write_text('IN = "in"\n')
    (shop / "parts" / "orders.py").write_text(
        APP.replace("from neighbour import IN", "from shop.names import IN")
    )
    assert penstock("describe", shop / "parts" / "orders.py") == (0, TEXT, "")
    # Modules of the same directory can also be imported without the package.
    (shop / "near.py").write_text(APP.replace("from neighbour", "from names"))
    assert penstock("describe", shop / "near.py") == (0, TEXT, "")


def test_topology_without_serdes_can_be_described(penstock, tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    file.write_text(
        "from penstock import StreamsBuilder\n"
        "builder = StreamsBuilder()\n"
        "builder.stream('orders').to('sales')\n"
    )
    ran = penstock("describe", file)
    assert (ran.code, ran.err) == (0, "")
    assert "Sink: KSTREAM-SINK-0000000001 (topic: sales)" in ran.out


def test_describe_draws_a_topology(penstock, tmp_path: Path) -> None:
    assert penstock("describe", "app.py", "--mermaid").out.startswith("flowchart TD\n")
    assert penstock("describe", "app.py", "--dot").out.startswith("digraph topology {\n")
    assert penstock("describe", "app.py", "--svg").out.startswith("<svg ")
    target = tmp_path / "topology.png"
    assert penstock("describe", "app.py", "--png", "--output", str(target)).out == ""
    assert target.read_bytes().startswith(b"\x89PNG")
