"""Who may import whom: outside packages have one place each, and the layers point one way."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from house import tree

#: An outside package, and the only places in penstock that may see it.
PLACES = {
    "pyspark": ("penstock.engine.spark", "penstock.cli"),
    "confluent_kafka": ("penstock.log.kafka", "penstock.clients"),
    "lmdb": ("penstock.stores.bytes.lmdb",),
    "pydantic": (),
    "pyarrow": ("penstock.log", "penstock.engine"),
    "cloudpickle": ("penstock.engine",),
    "sqlite3": ("penstock.log.embedded",),
}

#: A layer, and the layers it must not import.
FORBIDDEN = {
    "penstock.processors": ("dsl", "task", "topology", "testing", "engine", "log", "app"),
    "penstock.stores": ("processors", "dsl", "task", "topology", "testing", "engine", "app"),
    "penstock.topology": ("dsl", "task", "testing", "engine", "log", "app"),
    "penstock.dsl": ("task", "testing", "engine", "log", "app"),
    "penstock.task": ("dsl", "testing", "engine", "log", "app"),
}

LEAVES = ("clock", "config", "errors", "record", "serdes", "windows", "handlers", "timestamps")
HEAVY = ("pyspark", "pyarrow", "pydantic", "confluent_kafka", "lmdb")
PURE = ("task", "stores", "testing", "dsl", "topology", "processors")


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


@pytest.mark.parametrize("outside", PLACES)
def test_an_outside_package_is_imported_only_in_its_place(outside: str) -> None:
    strangers = [
        module
        for module, path in tree.modules().items()
        if not any(within(module, place) for place in PLACES[outside])
        and any(within(name, outside) for name in tree.imports(path))
    ]
    assert strangers == []


@pytest.mark.parametrize("layer", FORBIDDEN)
def test_a_layer_does_not_import_the_layers_above_it(layer: str) -> None:
    wrong = [
        f"{module} imports {name}"
        for module, path in tree.modules().items()
        if within(module, layer)
        for name in sorted(tree.imports(path))
        if any(within(name, f"penstock.{other}") for other in FORBIDDEN[layer])
    ]
    assert wrong == []


@pytest.mark.parametrize("leaf", LEAVES)
def test_a_leaf_module_imports_no_layer(leaf: str) -> None:
    names = tree.imports(tree.modules()[f"penstock.{leaf}"])
    layers = {"dsl", "topology", "task", "processors", "stores", "log", "engine", "testing"}
    assert {name for name in names if name.startswith("penstock.") and
            name.split(".")[1] in layers} == set()


@pytest.mark.parametrize("package", PURE)
def test_the_pure_packages_import_without_heavy_ones(package: str) -> None:
    # LMDB is for the store that is made of it, and for what is made of that store; the plugin is
    # loaded by pytest.
    apart = ("penstock.stores.bytes.lmdb", "penstock.stores.replica", "penstock.testing.plugin")
    mine = [name for name in tree.modules() if within(name, f"penstock.{package}")]
    mine = [name for name in mine if not name.startswith(apart)]
    code = (
        f"import importlib, sys\n"
        f"for name in {mine!r}: importlib.import_module(name)\n"
        f"sys.exit(','.join(name for name in {HEAVY!r} if name in sys.modules) or None)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_imports_are_absolute() -> None:
    relative = [
        module
        for module, path in tree.modules().items()
        for node in ast.walk(tree.parsed(path))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert relative == []
