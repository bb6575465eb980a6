"""Fails unless the installed wheel has the native core, the examples and the templates of projects.

`make wheels` and cibuildwheel run it in an environment with the wheel and its dependencies alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

import penstock
import penstock.cli.main
import penstock.log
import penstock.testing
from penstock import native
from penstock.cli.project import project_files
from penstock.log import open_log

PACKAGE = Path(penstock.__file__).parent

assert PACKAGE.is_relative_to(sys.prefix), PACKAGE
assert native.in_use() == "native", native.in_use()
assert (PACKAGE / "_examples" / "words" / "demo.py").is_file()
assert "orders/topology.py" in project_files("orders")
assert callable(open_log)
