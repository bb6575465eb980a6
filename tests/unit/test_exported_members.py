from __future__ import annotations

import ast
from pathlib import Path

import pytest

import penstock
from penstock import StreamsConfig, TopologyConfig, errors

TREE = ast.parse(Path(penstock.__file__).read_text(encoding="utf-8"))


def imported() -> set[str]:
    """What type checkers see."""
    (checked,) = [node for node in TREE.body if isinstance(node, ast.If)]
    return {
        alias.asname or alias.name
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_all_is_a_sorted_list_of_literals() -> None:
    (assigned,) = [
        node for node in TREE.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    assert ast.literal_eval(assigned.value) == penstock.__all__
    assert penstock.__all__ == sorted(set(penstock.__all__))


def test_type_checkers_and_python_see_the_same_names() -> None:
    assert imported() == set(penstock.__all__)
    assert set(penstock._HOME) == set(penstock.__all__)
    assert [name for name in penstock.__all__ if not hasattr(penstock, name)] == []
    assert set(penstock.__all__) <= set(dir(penstock))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'penstock' has no attribute 'KTopology'"):
        _ = penstock.KTopology


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
