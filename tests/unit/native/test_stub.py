"""`_core.pyi` describes the extension: names, parameters, and the members of its classes."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from penstock import native
from penstock.stores.cache import entries as cache_entries

if native.core is None:
    pytest.skip(f"penstock runs {native.in_use()}", allow_module_level=True)

core: Any = native.core
STUB = Path(native.__file__).with_name("_core.pyi")
BODY = next(
    node.body for node in ast.parse(STUB.read_text(encoding="utf-8")).body
    if isinstance(node, ast.ClassDef) and node.name == "Core"
)
FUNCTIONS = {node.name: node for node in BODY if isinstance(node, ast.FunctionDef)}
OTHERS = {ast.unparse(node.target) for node in BODY if isinstance(node, ast.AnnAssign)}
CLASSES = ("CacheEntry", "CacheBudget", "CacheEntries")


def test_stub_names_all_that_the_extension_has() -> None:
    public = {name for name in vars(core) if not name.startswith("__")}
    functions = {name for name in public if inspect.isbuiltin(getattr(core, name))}
    assert set(FUNCTIONS) == functions
    assert public - functions == OTHERS


@pytest.mark.parametrize("name", FUNCTIONS)
def test_stub_has_the_parameters_of_the_function(name: str) -> None:
    arguments = FUNCTIONS[name].args
    parameters = inspect.signature(getattr(core, name)).parameters.values()
    stub = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    assert stub == ["self", *(each.name for each in parameters)]
    assert len(arguments.defaults) == sum(each.default is not each.empty for each in parameters)


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - {"zero"}))
def test_function_takes_as_many_arguments_as_its_signature_says(name: str) -> None:
    function = getattr(core, name)
    parameters = inspect.signature(function).parameters.values()
    required = sum(each.default is each.empty for each in parameters)
    for given, wanted in ((0, required), (50, len(parameters))):
        with pytest.raises(TypeError, match=r"takes (exactly|at least|at most)") as refused:
            function(*[None] * given)
        number = re.search(r"takes \w+(?: \w+)? (\w+) argument", str(refused.value))
        assert number is not None
        assert int(number[1].replace("one", "1")) == wanted


@pytest.mark.parametrize("name", CLASSES)
def test_native_class_has_the_members_of_its_twin(name: str) -> None:
    twin, own = getattr(cache_entries, name), getattr(core, name)
    documented = {each for each in (*vars(twin), *getattr(twin, "__slots__", ()))
                  if not each.startswith("_")}
    # Only the Python twin changes entries in place from outside; the extension does it in C.
    assert documented - set(vars(own)) - {"rewrite"} == set()
