"""Classes of a file that nobody can import arrive whole, in another process."""

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
TEXTS = {
    "Colour": b'"red"', "Address": b'{"city":"Bern","zip":0}', "User": USER,
    "Admin": b'{"type":"Admin","level":2,"firstName":"A","address":{"city":"B","zip":0}}',
    "Box": b'{"item":3}', "Coded": b'[1,"y"]',
    "Item": b'{"name":"a","parts":[{"name":"b","parts":[],"owner":null}],"owner":' + USER + b"}",
    "Pair": b'[1,{"name":"a","parts":[],"owner":null}]', "Loose": b'{"x":1}',
}
READER = '''
import pickle, sys
import msgspec
kind, use = pickle.load(sys.stdin.buffer)
assert "classes" not in sys.modules
sys.stdout.buffer.write(msgspec.json.encode(use(kind)))
'''


@pytest.fixture(params=["", "from __future__ import annotations"], ids=["objects", "texts"])
def classes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ModuleType]:
    """A module that travels by value, with annotations of either kind."""
    path = tmp_path / "classes.py"
    path.write_text(request.param + CLASSES)
    spec = importlib.util.spec_from_file_location("classes", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["classes"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    # What msgspec has seen it keeps in the class.
    msgspec.json.Decoder(module.Item)
    yield module
    cloudpickle.unregister_pickle_by_value(module)
    del sys.modules["classes"]


def elsewhere(kind: Any, use: Callable[[Any], Any]) -> Any:
    """What another process makes of a class."""
    # A function of this module would be looked for by its name.
    use.__module__ = "classes"
    ran = subprocess.run(
        [sys.executable, "-c", READER], input=dumps((kind, use)), capture_output=True, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()
    return msgspec.json.decode(ran.stdout)


@pytest.mark.parametrize("name", TEXTS)
def test_a_class_reads_and_writes_the_same_elsewhere(name: str, classes: ModuleType) -> None:
    text = TEXTS[name]

    def use(kind: Any) -> Any:
        import msgspec

        return [
            msgspec.json.encode(msgspec.json.decode(text, type=kind)).decode(),
            str(msgspec.json.decode(text, type=kind)),
        ]

    there = elsewhere(getattr(classes, name), use)
    here = msgspec.json.decode(text, type=getattr(classes, name))
    assert there == [text.decode(), str(here)] == use(getattr(classes, name))


def test_what_a_struct_can_do_goes_with_it(classes: ModuleType) -> None:
    def use(kind: Any) -> Any:
        made = kind.named("ann")
        try:
            kind(first_name="", address=made.address)
        except ValueError as error:
            return [made.loud, kind.limit, str(error), made == kind.named("ann"), kind.__name__]
        return None

    assert elsewhere(classes.User, use) == ["ANN", 3, "no name", True, "User"]


def test_a_struct_stays_frozen(classes: ModuleType) -> None:
    def use(kind: Any) -> Any:
        try:
            kind("Bern").city = "Basel"
        except AttributeError as error:
            return str(error)
        return None

    assert "immutable" in elsewhere(classes.Address, use)


def test_what_is_checked_is_checked_elsewhere(classes: ModuleType) -> None:
    def use(kind: Any) -> Any:
        import msgspec

        try:
            msgspec.json.decode(b'{"type":"Admin","level":0,"firstName":"A","address":{"city":"B"}}',
                                type=kind)
        except msgspec.ValidationError as error:
            return str(error)
        return None

    assert ">= 1" in elsewhere(classes.Admin, use)


def test_a_class_itself_is_not_touched(classes: ModuleType) -> None:
    before = {name: dict(vars(getattr(classes, name))) for name in TEXTS}
    dumps([getattr(classes, name) for name in TEXTS])
    assert {name: dict(vars(getattr(classes, name))) for name in TEXTS} == before
