"""Classes that a process cannot import arrive complete in that process."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import msgspec
import pytest

from penstock.engine.packaging.pickling import dumps

CLASSES = '''
import dataclasses
import datetime
import enum
from typing import Annotated, ClassVar, Generic, NamedTuple, TypedDict, TypeVar

import msgspec

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"


class Address(msgspec.Struct, frozen=True):
    city: str
    zip: int = 0


class User(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True, tag=True):
    first_name: str
    address: Address
    friends: "list[User]" = []
    born: datetime.date | None = None
    colour: Colour = Colour.RED
    extra: dict = msgspec.field(default_factory=dict)
    limit: ClassVar[int] = 3

    @property
    def loud(self):
        return self.first_name.upper()

    @classmethod
    def named(cls, name):
        return User(first_name=name, address=Address("Bern"))

    def __post_init__(self):
        if not self.first_name:
            raise ValueError("no name")


class Admin(User):
    level: Annotated[int, msgspec.Meta(ge=1)]


class Box(msgspec.Struct, Generic[T]):
    item: T


class Coded(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    a: int
    b: str = msgspec.field(default="x", name="B")


@dataclasses.dataclass
class Item:
    name: str
    parts: "list[Item]" = dataclasses.field(default_factory=list)
    owner: User | None = None


class Pair(NamedTuple):
    a: int
    b: Item


class Loose(TypedDict, total=False):
    x: int
'''
USER = b'{"type":"User","firstName":"A","address":{"city":"B","zip":0}}'
JSON = {
    "Colour": b'"red"', "Address": b'{"city":"Bern","zip":0}', "User": USER,
    "Admin": b'{"type":"Admin","level":2,"firstName":"A","address":{"city":"B","zip":0}}',
    "Box": b'{"item":3}', "Coded": b'[1,"y"]',
    "Item": b'{"name":"a","parts":[{"name":"b","parts":[],"owner":null}],"owner":' + USER + b"}",
    "Pair": b'[1,{"name":"a","parts":[],"owner":null}]', "Loose": b'{"x":1}',
}
READER_PROGRAM = '''
import pickle, sys
import msgspec
kind, use = pickle.load(sys.stdin.buffer)
assert "classes" not in sys.modules
sys.stdout.buffer.write(msgspec.json.encode(use(kind)))
'''


@pytest.fixture(params=["", "from __future__ import annotations"], ids=["objects", "strings"])
def classes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ModuleType]:
    """A module that is pickled by value, with annotations as objects or as strings."""
    path = tmp_path / "classes.py"
    path.write_text(request.param + CLASSES)
    spec = importlib.util.spec_from_file_location("classes", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["classes"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    # Makes msgspec add its cache to the class.
    msgspec.json.Decoder(module.Item)
    yield module
    cloudpickle.unregister_pickle_by_value(module)
    del sys.modules["classes"]


def in_another_process(kind: Any, use: Callable[[Any], Any]) -> Any:
    """Call a function with a class in another process."""
    # A function of this module would be pickled by reference.
    use.__module__ = "classes"
    finished = subprocess.run(
        [sys.executable, "-c", READER_PROGRAM], input=dumps((kind, use)), capture_output=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr.decode()
    return msgspec.json.decode(finished.stdout)


@pytest.mark.parametrize("name", JSON)
def test_class_decodes_and_encodes_the_same_in_another_process(
    name: str, classes: ModuleType
) -> None:
    json = JSON[name]

    def use(kind: Any) -> Any:
        import msgspec

        return [
            msgspec.json.encode(msgspec.json.decode(json, type=kind)).decode(),
            str(msgspec.json.decode(json, type=kind)),
        ]

    there = in_another_process(getattr(classes, name), use)
    here = msgspec.json.decode(json, type=getattr(classes, name))
    assert there == [json.decode(), str(here)] == use(getattr(classes, name))


def test_methods_of_a_struct_are_pickled_with_it(classes: ModuleType) -> None:
    def use(kind: Any) -> Any:
        made = kind.named("ann")
        try:
            kind(first_name="", address=made.address)
        except ValueError as error:
            return [made.loud, kind.limit, str(error), made == kind.named("ann"), kind.__name__]
        return None

    assert in_another_process(classes.User, use) == ["ANN", 3, "no name", True, "User"]


def test_frozen_struct_stays_frozen(classes: ModuleType) -> None:
    def use(kind: Any) -> Any:
        try:
            kind("Bern").city = "Basel"
        except AttributeError as error:
            return str(error)
        return None

    assert "immutable" in in_another_process(classes.Address, use)


def test_constraints_apply_in_another_process(classes: ModuleType) -> None:
    def use(kind: Any) -> Any:
        import msgspec

        try:
            msgspec.json.decode(b'{"type":"Admin","level":0,"firstName":"A","address":{"city":"B"}}',
                                type=kind)
        except msgspec.ValidationError as error:
            return str(error)
        return None

    assert ">= 1" in in_another_process(classes.Admin, use)


def test_pickling_does_not_change_the_class(classes: ModuleType) -> None:
    before = {name: dict(vars(getattr(classes, name))) for name in JSON}
    dumps([getattr(classes, name) for name in JSON])
    assert {name: dict(vars(getattr(classes, name))) for name in JSON} == before
