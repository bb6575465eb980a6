"""Loads the topology that `FILE[:NAME]` or `MODULE[:NAME]` refers to."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shlex
import sys
import sysconfig
import traceback
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from penstock.cli.errors import CommandError
from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.suggestions import did_you_mean
from penstock.topology.topology import Topology
from penstock.topology_config import TopologyConfig, building_with

#: Names to look for, in this order, if the target has no name.
DEFAULT_NAMES = ("topology", "build_topology", "builder", "build", "app")
#: Variables of the module that may hold the configuration.
CONFIG_NAMES = ("config", "CONFIG")

#: The directory of penstock, with a trailing separator.
_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
#: The directories of Python's own modules and of installed packages.
_INSTALLED = tuple(
    os.path.join(path, "") for name, path in sysconfig.get_paths().items()
    if name in {"stdlib", "platstdlib", "purelib", "platlib"}
)


@dataclass(frozen=True)
class TopologyTarget:
    """An imported module and the object in it that is, or creates, a topology."""

    #: The argument of the command.
    spec: str
    #: The file or module.
    location: str
    module: ModuleType
    #: A `Topology`, a `StreamsBuilder`, or a function that returns one.
    factory: Any
    name: str

    @property
    def is_file(self) -> bool:
        """Whether the target is a path. Other processes cannot import it by its name."""
        return _is_file(self.location)

    @property
    def import_paths(self) -> list[str]:
        """The entries of `sys.path` that the module and its neighbours need."""
        return _import_name(self.location)[0] if self.is_file else [os.getcwd()]

    @property
    def config(self) -> Any:
        """The configuration in the module; None if it has none."""
        return next(
            (getattr(self.module, name) for name in CONFIG_NAMES if hasattr(self.module, name)),
            None,
        )

    def build(self, config: StreamsConfig, *, requires_serdes: bool = True) -> Topology:
        """Return the topology, built with the configuration.

        A function that creates a builder without one, or with that of the module, gets this one.
        Without `requires_serdes`, missing serdes are not an error.
        """
        result = self.factory
        if callable(result) and not isinstance(result, Topology | StreamsBuilder):
            own = self.config
            with building_with(
                config, instead_of=own if isinstance(own, StreamsConfig) else None
            ):
                result = _call(result, f"{self.name}() in '{self.location}'")
        if isinstance(result, StreamsBuilder):
            builder = result
            given = config if requires_serdes else TopologyConfig(config)
            result = _call(lambda: builder.build(given), f"Building '{self.spec}'")
        if not isinstance(result, Topology):
            raise CommandError(
                f"'{self.spec}' has the type {type(result).__name__}. It must be a Topology, a "
                "StreamsBuilder, or a function that returns one."
            )
        return result


def load_target(spec: str) -> TopologyTarget:
    """Import the module of a target and find the topology in it; calls no function."""
    location, name = _split(spec)
    module = _import(location)
    factory = _find_factory(module, location, name)
    return TopologyTarget(
        spec, location, module, factory, name or str(getattr(factory, "__name__", ""))
    )


def _split(spec: str) -> tuple[str, str | None]:
    location, colon, name = spec.rpartition(":")
    # A colon may also belong to a drive or to the name of a file.
    if not colon or not name.replace(".", "_").isidentifier() or os.path.exists(spec):
        return spec, None
    return location, name


def _is_file(location: str) -> bool:
    return location.endswith(".py") or os.sep in location


def _import(location: str) -> ModuleType:
    if not _is_file(location):
        sys.path.insert(0, os.getcwd())
        return _import_module(location)
    if not os.path.isfile(location):
        raise CommandError(f"The file '{location}' does not exist.")
    paths, name = _import_name(location)
    sys.path[:0] = paths
    if len(paths) > 1:
        module = _import_module(name)
        # Another package of this name may have been imported before.
        if os.path.samefile(str(module.__file__), location):
            return module
    spec = importlib.util.spec_from_file_location(name, location)
    if spec is None or spec.loader is None:
        raise CommandError(f"'{location}' is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    # A file may have the name of a module that penstock uses. That module must stay.
    sys.modules.setdefault(spec.name, module)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _user_error(f"'{location}'", error) from error
    return module


def _import_name(location: str) -> tuple[list[str], str]:
    """Return the entries of `sys.path` that a file needs, and the name to import it by.

    The directory of the file is an entry, as for `python app.py`. If it is a package, the parent
    of the outermost package is another one.
    """
    directory, file = os.path.split(os.path.abspath(location))
    root, name = directory, file.removesuffix(".py")
    while os.path.isfile(os.path.join(root, "__init__.py")) and os.path.dirname(root) != root:
        root, package = os.path.split(root)
        name = f"{package}.{name}"
    return [directory] if root == directory else [root, directory], name


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise CommandError(
                f"The module '{name}' does not exist in this directory or among the installed "
                "packages. The target is the file or the module with the topology, such as "
                "app.py, not the id of the application."
            ) from error
        raise _user_error(f"'{name}'", error) from error
    except (Exception, SystemExit) as error:
        raise _user_error(f"'{name}'", error) from error


def _find_factory(module: ModuleType, location: str, name: str | None) -> Any:
    if name is not None:
        found: Any = module
        for part in name.split("."):
            if not hasattr(found, part):
                raise CommandError(
                    f"'{name}' does not exist in '{location}'."
                    f"{did_you_mean(name, _candidates(module))} {_candidates_text(module)}"
                )
            found = getattr(found, part)
        return found
    for default in DEFAULT_NAMES:
        found = getattr(module, default, None)
        if _may_be_topology(found):
            return found
    candidates = _candidates(module)
    if not candidates:
        raise CommandError(
            f"'{location}' has no topology. Define a StreamsBuilder or a Topology at its top "
            "level, or a function topology() that returns one. For a function with another name "
            f"use {shlex.quote(f'{location}:NAME')}."
        )
    if len(candidates) != 1:
        raise CommandError(
            f"'{location}' has several topologies. Use {shlex.quote(f'{location}:NAME')}. "
            f"{_candidates_text(module)}"
        )
    return getattr(module, candidates[0])


def _may_be_topology(found: object) -> bool:
    """Whether the member with a default name is a topology, or a function that may return one."""
    return isinstance(found, Topology | StreamsBuilder) or (
        callable(found) and not isinstance(found, type)
    )


def _candidates(module: ModuleType) -> list[str]:
    """Return the names of topologies, builders, and functions that return one.

    Such a function has a default name or a return annotation.
    """
    names = []
    for name, member in vars(module).items():
        is_default = name in DEFAULT_NAMES and _may_be_topology(member)
        if is_default or isinstance(member, Topology | StreamsBuilder):
            names.append(name)
        elif getattr(member, "__module__", None) == module.__name__ and callable(member):
            returned = getattr(member, "__annotations__", {}).get("return")
            if returned in (Topology, StreamsBuilder, "Topology", "StreamsBuilder"):
                names.append(name)
    return names


def _candidates_text(module: ModuleType) -> str:
    return f"Topologies: {', '.join(_candidates(module)) or 'none'}."


def _call(function: Any, title: str) -> Any:
    try:
        return function()
    except Exception as error:
        raise _user_error(title, error) from error


def _user_error(title: str, error: BaseException) -> CommandError:
    """Describe an error by the user's line: of the step, or the last one of the traceback."""
    line = getattr(error, "location", None) or _last_user_line(error)
    return CommandError(
        f"{title} failed with {type(error).__name__}: {error}{f' ({line})' if line else ''}"
    )


def _last_user_line(error: BaseException) -> str | None:
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<", _PACKAGE))
    ]
    # Installed packages and Python itself are not the user's code, if anything else is.
    own = [frame for frame in frames if not frame.filename.startswith(_INSTALLED)]
    return next(
        (f"{frame.filename}, line {frame.lineno}" for frame in reversed(own or frames)), None
    )
