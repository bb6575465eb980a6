"""No argument makes the native core read or write memory that is not its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock import native

SCRIPT = Path(__file__).with_name("random_arguments.py")


@pytest.mark.skipif(native.core is None, reason=f"penstock runs {native.in_use()}")
@pytest.mark.parametrize("seed", range(3))
def test_native_code_survives_random_arguments(seed: int) -> None:
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), str(seed), "150"], capture_output=True, text=True,
        check=False, timeout=300,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
