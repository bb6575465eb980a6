from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

import penstock
from penstock import StreamsConfig, TopologyConfig, errors

TREE = ast.parse(Path(penstock.__file__).read_text(encoding="utf-8"))


def imported() -> set[str]:
    return {
        alias.asname or alias.name
        for node in TREE.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_all_is_a_sorted_list_of_literals() -> None:
    (assigned,) = [node for node in TREE.body if isinstance(node, ast.Assign)]
    assert ast.literal_eval(assigned.value) == penstock.__all__
    assert penstock.__all__ == sorted(set(penstock.__all__))


def test_everything_that_is_imported_is_exported_and_there() -> None:
    assert imported() == set(penstock.__all__)
    assert [name for name in penstock.__all__ if not hasattr(penstock, name)] == []


def test_nothing_else_is_public() -> None:
    public = {
        name for name, member in vars(penstock).items()
        if not name.startswith("_") and not isinstance(member, ModuleType)
    }
    assert public == set(penstock.__all__)


def test_exported_errors_are_those_of_the_errors_module() -> None:
    exported = [name for name in penstock.__all__ if hasattr(errors, name)]
    assert len(exported) > 5
    assert all(getattr(penstock, name) is getattr(errors, name) for name in exported)


def test_a_topology_may_have_settings_of_its_own() -> None:
    config = StreamsConfig(application_id="app", topology_optimization="all")
    own = TopologyConfig(config, {"topology.optimization": "none", "max_task_idle_ms": 5})
    made = own.streams_config()
    assert (made.application_id, made.topology_optimization, made.max_task_idle_ms) == (
        "app", frozenset(), 5,
    )
    assert config.max_task_idle_ms == 0
