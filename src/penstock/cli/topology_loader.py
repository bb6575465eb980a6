"""Finds the topology that a text names, in a file or a module."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from penstock.cli.errors import CommandFailed
from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.topology.describe import (
    NodeDescription,
    ProcessorDescription,
    SinkDescription,
    SourceDescription,
    TopologyDescription,
)
from penstock.topology.topology import Topology

#: Looked for in a module when no name is given, in this order.
USUAL_NAMES = ("topology", "build_topology", "builder", "build", "app")

#: Where penstock itself is.
_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")


@dataclass(frozen=True)
class Found:
    """What a text names, before it is made a topology."""

    target: str
    #: The file or module that it is in.
    where: str
    module: ModuleType
    #: A `Topology`, a `StreamsBuilder`, or a function that makes one.
    maker: Any
    name: str

    @property
    def is_file(self) -> bool:
        """It was named by its path; no other process can import it by its name."""
        return _is_file(self.where)

    @property
    def folders(self) -> list[str]:
        """What has to be on the path of whoever imports it, and its neighbours."""
        return _place(self.where)[0] if self.is_file else [os.getcwd()]

    def topology(self, config: StreamsConfig | None = None) -> Topology:
        """The topology; a builder that is there builds it with the configuration."""
        made = self.maker
        if callable(made) and not isinstance(made, Topology | StreamsBuilder):
            made = _called(made, f"{self.name}() of '{self.where}'")
        if isinstance(made, StreamsBuilder):
            made = made.build(config)
        if not isinstance(made, Topology):
            raise CommandFailed(
                f"'{self.target}' is no topology but a {type(made).__name__}. "
                "Name a Topology, a StreamsBuilder, or a function that makes one."
            )
        return made


def find(target: str) -> Found:
    """Import what a text names; nothing is called yet."""
    where, name = _split(target)
    module = _imported(where)
    maker = _found(module, where, name)
    return Found(target, where, module, maker, name or str(getattr(maker, "__name__", "")))


def load_topology(target: str) -> Topology:
    """The topology that a text names."""
    return find(target).topology()


def _split(target: str) -> tuple[str, str | None]:
    where, colon, name = target.rpartition(":")
    # The colon of a drive is no separator, and a file may be named as it likes.
    if not colon or not name.replace(".", "_").isidentifier() or os.path.exists(target):
        return target, None
    return where, name


def _is_file(where: str) -> bool:
    return where.endswith(".py") or os.sep in where


def _imported(where: str) -> ModuleType:
    if not _is_file(where):
        sys.path.insert(0, os.getcwd())
        return _imported_module(where)
    if not os.path.isfile(where):
        raise CommandFailed(f"No file '{where}'.")
    folders, name = _place(where)
    sys.path[:0] = folders
    if len(folders) > 1:
        module = _imported_module(name)
        # Unless a package of that name was there before.
        if os.path.samefile(str(module.__file__), where):
            return module
    spec = importlib.util.spec_from_file_location(name, where)
    if spec is None or spec.loader is None:
        raise CommandFailed(f"'{where}' is no file of Python.")
    module = importlib.util.module_from_spec(spec)
    # A file may be called like a module that penstock needs; that one must stay.
    sys.modules.setdefault(spec.name, module)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _failed(f"'{where}'", error) from error
    return module


def _place(where: str) -> tuple[list[str], str]:
    """The folders that a file needs on the path, and the name by which it is imported.

    As `python app.py` would have it, so that its neighbours can be imported; and if they are a
    package, by the name of that, too.
    """
    folder, file = os.path.split(os.path.abspath(where))
    root, name = folder, file.removesuffix(".py")
    while os.path.isfile(os.path.join(root, "__init__.py")) and os.path.dirname(root) != root:
        root, package = os.path.split(root)
        name = f"{package}.{name}"
    return [folder] if root == folder else [root, folder], name


def _imported_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise CommandFailed(f"No module '{name}' here or among the installed ones.") from error
        raise _failed(f"'{name}'", error) from error
    except (Exception, SystemExit) as error:
        raise _failed(f"'{name}'", error) from error


def _found(module: ModuleType, where: str, name: str | None) -> Any:
    if name is not None:
        found: Any = module
        for part in name.split("."):
            if not hasattr(found, part):
                raise CommandFailed(f"No '{name}' in '{where}'. {_candidates_text(module)}")
            found = getattr(found, part)
        return found
    for usual in USUAL_NAMES:
        found = getattr(module, usual, None)
        if isinstance(found, Topology | StreamsBuilder) or (
            callable(found) and not isinstance(found, type)
        ):
            return found
    candidates = _candidates(module)
    if not candidates:
        raise CommandFailed(
            f"No topology was found in '{where}'. It needs a StreamsBuilder or a Topology at its "
            "top level, or a function topology() that makes one. A function with another name is "
            f"named: {where}:NAME."
        )
    if len(candidates) != 1:
        raise CommandFailed(
            f"Which topology of '{where}'? Name it: {where}:NAME. {_candidates_text(module)}"
        )
    return getattr(module, candidates[0])


def _candidates(module: ModuleType) -> list[str]:
    """Names that are, or say that they make, a topology."""
    names = []
    for name, member in vars(module).items():
        if isinstance(member, Topology | StreamsBuilder):
            names.append(name)
        elif getattr(member, "__module__", None) == module.__name__ and callable(member):
            answers = getattr(member, "__annotations__", {}).get("return")
            if answers in (Topology, StreamsBuilder, "Topology", "StreamsBuilder"):
                names.append(name)
    return names


def _candidates_text(module: ModuleType) -> str:
    return f"Topologies: {', '.join(_candidates(module)) or 'none'}."


def _called(function: Any, what: str) -> Any:
    try:
        return function()
    except Exception as error:
        raise _failed(what, error) from error


def _failed(what: str, error: BaseException) -> CommandFailed:
    """What the user's own code raised, and where: its last line that is not of penstock."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<", _PACKAGE))
    ]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return CommandFailed(f"{what} failed with {type(error).__name__}: {error}{place}")


def as_json(description: TopologyDescription) -> dict[str, object]:
    return {
        "subtopologies": [
            {"id": part.id, "nodes": [_node(node) for node in part.nodes]}
            for part in description.subtopologies
        ],
        "global_stores": [
            {"id": store.id, "source": _node(store.source), "processor": _node(store.processor)}
            for store in description.global_stores
        ],
    }


def _node(node: NodeDescription) -> dict[str, object]:
    row: dict[str, object] = {"name": node.name, "kind": node.kind}
    if isinstance(node, SourceDescription):
        row["topics"] = None if node.topic_set is None else list(node.topic_set)
        row["topic_pattern"] = None if node.topic_pattern is None else node.topic_pattern.pattern
    elif isinstance(node, ProcessorDescription):
        row["stores"] = list(node.stores)
    elif isinstance(node, SinkDescription):
        row["topic"] = node.topic
    row["predecessors"] = list(node.predecessors)
    row["successors"] = list(node.successors)
    return row
