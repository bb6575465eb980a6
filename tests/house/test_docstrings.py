"""Every public class and function has a docstring that documents its parameters, and the examples
of docstrings run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from house import tree

PACKAGES = ("penstock", "penstock.testing", "penstock.stores", "penstock.clients")
#: Classes that users create with a constructor; the docstring of the class documents it.
CONSTRUCTED = (
    "AdminClient", "ConfigResource", "Consumer", "MockProcessorContext", "Producer", "Serde",
    "StateSerdes", "Streams", "TopicHandler", "TopicPartition", "Topology", "TopologyTestDriver",
)
#: Classes whose objects users only receive, and plain data: fields, constants, parameters.
WITHOUT_EXAMPLE = frozenset(re.findall(r"\w+", """
    AggregationWithHeaders AlterConfigOpType BuiltInDslStoreSuppliers BytesStore Cancellable
    CapturedForward CapturedPunctuator Change ClusterMetadata ConfigEntry ConfigResource
    ConfigSource ConsumedRecord ConsumerGroupDescription ConsumerGroupListing ConsumerGroupMetadata
    ConsumerGroupState ConsumerGroupTopicPartitions DeletedRecords DslKeyValueParams
    DslSessionParams DslStoreFormat DslStoreSuppliers DslWindowParams ErrorHandlerContext
    FailureReason FixedKeyRecord KafkaError KeyQueryMetadata KeyValueSupplier LagInfo
    ListConsumerGroupsResult ListOffsetsResultInfo Message MetricName NewPartitions NewTopic
    ProducedRecord PunctuationType Query ReadOnlyKeyValueStore ReadOnlySessionStore
    ReadOnlyVersionedStore ReadOnlyWindowStore RecordCache RecordContext
    RecordMetadata ResourceType ResultOrder Sensor SerializationExceptionOrigin
    SessionStoreWithHeaders SessionSupplier SessionWindow StandbyUpdateListener Stat State
    StateSerdes StateStore StoreContext StreamsMetadata SuspendReason TaskId TaskMetadata
    ThreadMetadata TimestampedKeyValueStoreWithHeaders TimestampedWindowStoreWithHeaders
    TopicCollection TopicHandler TopicMetadata TopicPartition TopologyDescription ValueAndTimestamp
    ValueTimestampHeaders VersionedRecord VersionedSupplier WindowSupplier Windows
    WrappedProcessorSupplier
"""))


def public_objects() -> dict[str, Any]:
    """Return name -> each class and function that a package exports, where it is defined."""
    found = {}
    for package in map(importlib.import_module, PACKAGES):
        for name in package.__all__:
            each = getattr(package, name)
            where = str(getattr(each, "__module__", ""))
            is_documented = inspect.isclass(each) or inspect.isfunction(each)
            if is_documented and where.startswith("penstock."):
                found[f"{where}.{each.__qualname__}"] = each
    return found


def public_functions() -> Iterator[tuple[str, Callable[..., Any], str | None]]:
    """Yield name, function and docstring of each public function and method."""
    for name, each in public_objects().items():
        if inspect.isfunction(each):
            yield name, each, inspect.getdoc(each)
            continue
        for member, value in vars(each).items():
            function = getattr(value, "__func__", value)
            if not member.startswith("_") and inspect.isfunction(function):
                yield f"{name}.{member}", function, inspect.getdoc(getattr(each, member))


def undocumented(function: Callable[..., Any], docstring: str) -> set[str]:
    """Return the parameters that the section `Args:` of the docstring does not list."""
    parameters = set(inspect.signature(function).parameters) - {"self", "cls"}
    section = re.search(r"^Args:\n((?: {4}.*\n?|\n)+)", docstring, re.MULTILINE)
    listed = re.findall(r"^    (\w+):", section[1], re.MULTILINE) if section else []
    return parameters - set(listed)


def test_every_public_class_has_a_docstring() -> None:
    objects = public_objects()
    assert len(objects) > 130
    assert [name for name, each in objects.items() if not inspect.getdoc(each)] == []


def test_every_public_function_documents_its_parameters() -> None:
    functions = list(public_functions())
    assert len(functions) > 350
    assert [name for name, _, docstring in functions if docstring is None] == []
    missing = {
        name: sorted(names) for name, function, docstring in functions
        if docstring is not None and (names := undocumented(function, docstring))
    }
    assert missing == {}


def test_constructors_of_users_document_their_parameters() -> None:
    objects = {each.__name__: each for each in public_objects().values()}
    missing = {
        name: sorted(names) for name in CONSTRUCTED
        if (names := undocumented(
            objects[name].__init__, inspect.getdoc(objects[name]) or ""
        ))
    }
    assert missing == {}


def test_lists_of_parameters_name_no_others() -> None:
    extra = {
        name: sorted(others) for name, function, docstring in public_functions()
        if docstring is not None
        and (section := re.search(r"^Args:\n((?: {4}.*\n?|\n)+)", docstring, re.MULTILINE))
        and (others := set(re.findall(r"^    (\w+):", section[1], re.MULTILINE))
             - set(inspect.signature(function).parameters))
    }
    assert extra == {}


def returns_undocumented(function: Callable[..., Any], docstring: str) -> bool:
    """Whether a function returns a value and its docstring does not describe it.

    The summary describes it if it starts with "Return".
    """
    returned = inspect.signature(function).return_annotation
    if returned in (inspect.Signature.empty, None, "None", "NoReturn"):
        return False
    return not re.match("Returns? ", docstring) and not re.search(
        r"^Returns:\n    \S", docstring, re.MULTILINE
    )


def test_every_public_function_documents_its_result() -> None:
    missing = [
        name for name, function, docstring in public_functions()
        if returns_undocumented(function, docstring or "")
    ]
    assert missing == []


def test_missing_results_are_found() -> None:
    def function() -> int:
        return 1

    assert returns_undocumented(function, "Do it.")
    assert returns_undocumented(function, "Do it.\n\nReturns:\n")
    assert not returns_undocumented(function, "Do it.\n\nReturns:\n    A number.\n")
    assert not returns_undocumented(function, "Return a number.")


def test_classes_of_users_have_an_example() -> None:
    """The examples run below. Those of the DSL are in tests/house/test_dsl_docstrings.py."""
    classes = {
        each.__name__: inspect.getdoc(each) or "" for name, each in public_objects().items()
        if inspect.isclass(each) and not issubclass(each, BaseException)
        and not name.startswith("penstock.dsl.")
    }
    without = {
        name for name, docstring in classes.items()
        if not re.search(r"^Example:\n    >>> ", docstring, re.MULTILINE)
    }
    assert without - WITHOUT_EXAMPLE == set()
    # An example is no longer an exception.
    assert WITHOUT_EXAMPLE - without == set()
    assert len(classes) - len(without) > 50


def test_missing_parameters_are_found() -> None:
    def function(one: int, two: int) -> None: ...

    assert undocumented(function, "Do it.\n\nArgs:\n    one: A number.\n") == {"two"}
    assert undocumented(function, "Do it.") == {"one", "two"}


def with_examples() -> list[str]:
    return [
        module for module, path in tree.modules().items()
        if ">>> " in path.read_text(encoding="utf-8")
    ]


@pytest.mark.parametrize("module", with_examples())
def test_examples_of_docstrings_run(module: str) -> None:
    results = doctest.testmod(importlib.import_module(module), verbose=False)
    assert results.attempted > 0
    assert results.failed == 0
