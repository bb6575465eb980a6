"""`penstock --version` says which core runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import native

PENSTOCK = Path(sys.executable).with_name("penstock")


def version(**variables: str) -> str:
    ran = subprocess.run(
        [PENSTOCK, "--version"], capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, **variables},
    )
    return ran.stdout


def test_pure_python_is_reported_with_the_reason() -> None:
    shown = version(PENSTOCK_PURE_PYTHON="1")
    assert shown.endswith(", core: pure Python (PENSTOCK_PURE_PYTHON is set)\n")


@pytest.mark.skipif(native.core is None, reason="the extension is not built")
def test_native_core_is_reported() -> None:
    assert version().endswith(", core: native\n")
