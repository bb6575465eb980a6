"""Compiles the Java programs, and makes the folder of the examples importable."""

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
    """What `java_programs.command` takes; the programs are compiled once in a session."""
    if java_programs.javac() is None:
        pytest.skip("needs a JDK: there is no javac")
    return java_programs.compiled(tmp_path_factory.mktemp("java"))
