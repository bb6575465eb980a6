"""The packages without I/O load no heavy dependency. `make check` checks all other import rules."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from house import tree

HEAVY = ("pyspark", "pyarrow", "pydantic", "confluent_kafka", "lmdb")
PURE = ("task", "stores", "testing", "dsl", "topology", "processors")
#: The modules of the persistent store, the only ones that need LMDB.
PERSISTENT = ("penstock.stores.bytes.lmdb", "penstock.stores.replica")


@pytest.mark.parametrize("package", PURE)
def test_pure_package_loads_no_heavy_dependency(package: str) -> None:
    modules = [
        name for name in tree.modules()
        if f"{name}.".startswith(f"penstock.{package}.") and not name.startswith(PERSISTENT)
    ]
    code = (
        f"import importlib, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"sys.exit(','.join(name for name in {HEAVY!r} if name in sys.modules) or None)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def imported_packages(node: ast.stmt) -> set[str]:
    """The packages of an import; empty for other statements."""
    if isinstance(node, ast.ImportFrom):
        return {str(node.module).partition(".")[0]}
    names = node.names if isinstance(node, ast.Import) else []
    return {each.name.partition(".")[0] for each in names}


def test_unit_tests_do_not_import_spark() -> None:
    """`make wheels` runs them without PySpark. Tests of engine/spark are in tests/engine/spark."""
    assert [
        f"{path.relative_to(tree.ROOT)}:{node.lineno}"
        for path in tree.tracked_files()
        if path.is_relative_to(tree.ROOT / "tests/unit") and path.suffix == ".py"
        for node in tree.parsed(path).body if imported_packages(node) & {"pyspark", "py4j"}
    ] == []
