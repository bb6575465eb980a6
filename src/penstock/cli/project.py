"""Creates the files of a new project from the templates in `project_template/`.

A template has the path of its file, with `package` for the package, `dot.` for a leading dot, and
the suffix `.template`. `{{name}}`, `{{package}}` and `{{version}}` are replaced in its text.
"""

from __future__ import annotations

import keyword
import re
import sys
from importlib import metadata
from pathlib import Path

from penstock.cli.errors import CommandError, UsageError

TEMPLATES = Path(__file__).with_name("project_template")
_SUFFIX = ".template"
_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
_MAX_LENGTH = 100
#: Packages that a project or its tests import.
_TAKEN = frozenset(("penstock", "pyspark", "pytest", "tests"))


def package_name(name: str) -> str:
    """Return the package of a project. A name that cannot be used raises `UsageError`."""
    if not _NAME.fullmatch(name) or len(name) > _MAX_LENGTH:
        raise UsageError(
            f"'{name}' is not a valid project name. Use small letters, digits and dashes, and "
            "start with a letter: 'orders' or 'store-revenue'."
        )
    package = name.replace("-", "_")
    if keyword.iskeyword(package) or package in sys.stdlib_module_names or package in _TAKEN:
        raise UsageError(
            f"A project cannot have the name '{name}': Python or penstock uses '{package}'. "
            f"Choose another name, such as '{name}-app'."
        )
    return package


def project_files(name: str) -> dict[str, str]:
    """Return the text of every file of a project, by its path."""
    package = package_name(name)
    values = {"name": name, "package": package, "version": metadata.version("penstock")}
    files = {}
    for template in sorted(TEMPLATES.rglob(f"*{_SUFFIX}")):
        parts = template.relative_to(TEMPLATES).as_posix().removesuffix(_SUFFIX).split("/")
        path = "/".join(package if part == "package" else part for part in parts)
        files[re.sub(r"^dot\.", ".", path)] = _fill(template.read_text(encoding="utf-8"), values)
    return files


def _fill(text: str, values: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], text)


def create_project(name: str, folder: Path) -> list[str]:
    """Write the files of a project and return their paths.

    The folder must not exist, or be empty: no file is ever overwritten.
    """
    files = project_files(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CommandError(
            f"'{folder}' exists and is not an empty directory. Choose another name, or another "
            "place with --directory."
        )
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        # Mode x fails if another process has created the file meanwhile.
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    return sorted(files)
