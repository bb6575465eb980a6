"""Compiles the Java programs, and makes the examples importable."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kafka import java_programs

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

if str(EXAMPLES) not in sys.path:
    sys.path.insert(0, str(EXAMPLES))


@pytest.fixture(scope="session")
def java_class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path for `java_programs.command`. The programs are compiled once per session."""
    if java_programs.javac() is None:
        pytest.skip("needs a JDK: javac was not found")
    return java_programs.compile_programs(tmp_path_factory.mktemp("java"))
