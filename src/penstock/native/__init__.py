"""The parts that every record passes, in C where they could be built.

`core` is the extension, or None: then the same is done in Python, more slowly, with the same
answers. Whoever has a native part has a Python twin beside it and chooses once, when a store is
opened or a node is attached; nothing native is ever pickled. With the environment variable
PENSTOCK_PURE_PYTHON=1 the extension is left alone.

    python -c "from penstock import native; print(native.in_use())"
"""

from __future__ import annotations

import importlib
import os
from typing import Any

#: The version of the extension that this code calls.
_VERSION = 2


def _extension() -> tuple[Any, str]:
    """The extension, or None and why."""
    if os.environ.get("PENSTOCK_PURE_PYTHON", "") not in ("", "0"):
        return None, "PENSTOCK_PURE_PYTHON is set"
    try:
        found = importlib.import_module("penstock.native._core")
    except ImportError as error:
        return None, f"the extension was not built: {error}"
    if found.VERSION != _VERSION:
        return None, "the extension was built from other sources: install penstock again"
    return found, ""


core, _why_not = _extension()


def in_use() -> str:
    """Which of the two is used, and why it is not the extension."""
    return "native" if core is not None else f"pure Python ({_why_not})"
