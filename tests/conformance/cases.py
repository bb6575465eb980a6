"""Reads case files: one JSON object on each line, plain or gzipped."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Case = dict[str, Any]

#: The committed cases.
CASES = Path(__file__).resolve().parent / "cases"


class InvalidCase(Exception):
    """The case uses an unknown word, or a step that does not exist."""


def is_themed(path: Path) -> bool:
    """Whether the cases of a file were written one by one for a theme. The cases of `own-*` and
    `random-*` are generated."""
    return not path.name.startswith(("own-", "random-"))


def in_sample(case: Case, one_in: int) -> bool:
    """Whether a case belongs to a fixed sample. The hash of its name decides."""
    return zlib.crc32(case["name"].encode()) % one_in == 0


def case_id(path: Path, case: Case) -> str:
    """The id of a case in pytest. tests/conftest.py distributes cases by the part before ":"."""
    return f"{path.name.removesuffix('.jsonl.gz')}:{case['name']}"


def case_files(paths: Iterable[Path]) -> list[Path]:
    """Expand folders to the case files in them."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found.extend(sorted(p for p in path.rglob("*") if _is_case_file(p)))
        elif path.exists():
            found.append(path)
        else:
            raise FileNotFoundError(f"No such file or folder: {path}.")
    return found


def read_cases(path: Path) -> Iterator[Case]:
    """The cases of one file, in order."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else open(
        path, encoding="utf-8"
    ) as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def _is_case_file(path: Path) -> bool:
    return path.name.endswith((".jsonl", ".jsonl.gz"))
