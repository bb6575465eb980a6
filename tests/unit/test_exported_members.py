from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock import StreamsConfig, TopologyConfig, errors

STUB = Path(penstock.__file__).with_suffix(".pyi")


def stub_imports() -> list[tuple[str, str]]:
    """Module and name of each import in the stub."""
    return [
        (node.module or "", alias.name)
        for node in ast.parse(STUB.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name  # Type checkers see only names that are re-exported so.
    ]


def test_stub_lists_each_public_name_once_in_order() -> None:
    imports = stub_imports()
    assert imports == sorted(imports)
    assert sorted(name for _, name in imports) == penstock.__all__


def test_every_public_name_is_an_object_of_the_module_in_the_stub() -> None:
    assert len(penstock.__all__) > 100
    for module, name in stub_imports():
        exported = getattr(penstock, name)
        assert exported is getattr(sys.modules[f"penstock.{module}"], name)


def test_dir_shows_only_public_names() -> None:
    assert dir(penstock) == penstock.__all__


def test_import_of_the_package_loads_no_module_of_it() -> None:
    code = "import sys, penstock; print([name for name in sys.modules if 'penstock.' in name])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'KTopology'\. Did you mean 'Topology'\?"):
        _ = penstock.KTopology


def test_exported_errors_are_those_of_the_errors_module() -> None:
    exported = [name for name in penstock.__all__ if hasattr(errors, name)]
    assert len(exported) > 5
    assert all(getattr(penstock, name) is getattr(errors, name) for name in exported)


def test_topology_config_overrides_settings_of_the_application() -> None:
    config = StreamsConfig(application_id="app", topology_optimization="all")
    topology_config = TopologyConfig(
        config, {"topology.optimization": "none", "max_task_idle_ms": 5}
    )
    effective = topology_config.streams_config()
    assert (
        effective.application_id, effective.topology_optimization, effective.max_task_idle_ms
    ) == ("app", frozenset(), 5)
    assert config.max_task_idle_ms == 0
