"""The packages without I/O load no heavy dependency. `make check` checks all other import rules."""

from __future__ import annotations

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
