"""The hot path in C, if the extension is built.

`core` is the extension, or None. Without it penstock runs in pure Python, more slowly and with the
same results. Each native function has a Python twin; callers choose between them once, when a
store is opened or a node is attached. Nothing native is ever pickled. The environment variable
PENSTOCK_PURE_PYTHON=1 disables the extension.

    python -c "from penstock import native; print(native.in_use())"
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, cast

from penstock.native._sources import sources_checksum

if TYPE_CHECKING:
    from penstock.native._core import Core


def _extension() -> tuple[Core | None, str]:
    """The extension, or None and the reason."""
    if os.environ.get("PENSTOCK_PURE_PYTHON", "") not in ("", "0"):
        return None, "PENSTOCK_PURE_PYTHON is set"
    try:
        found = importlib.import_module("penstock.native._core")
    except ImportError as error:
        return None, f"the extension is not built: {error}"
    # An installed wheel has no C sources; in a clone they may be newer than the extension.
    expected = sources_checksum(os.path.dirname(__file__))
    if expected not in (None, getattr(found, "SOURCES", "")):
        return None, "the extension was built from other sources: run `make install`"
    return cast("Core", found), ""


core, _why_not = _extension()


def in_use() -> str:
    """The implementation in use, and the reason if it is not the extension."""
    return "native" if core is not None else f"pure Python ({_why_not})"
