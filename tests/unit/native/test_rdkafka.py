"""The extension for Kafka, without a broker. `tests/contracts` runs it with one."""

from __future__ import annotations

import ast
import inspect
import logging
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from penstock import native
from penstock.errors import ConfigException
from penstock.log.errors import InvalidRecord
from penstock.log.kafka.client import native_io
from penstock.log.kafka.client.native_io import NativeConsumer, NativeProducer, native_settings
from penstock.log.kafka.client.settings import ClientSettings, KafkaOptions
from penstock.log.kafka.encoding import check_columns
from penstock.record import RecordColumns

found = native_io.find_native()
needs_extension = pytest.mark.skipif(found is None, reason=f"penstock runs {native.in_use()}")
extension: Any = found
STUB = ast.parse(Path(native.__file__).with_name("_rdkafka.pyi").read_text(encoding="utf-8"))
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
#: A port on which nothing listens.
NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


def members(name: str) -> dict[str, ast.stmt]:
    """The members of a class in the stub, with those of its bases."""
    merged: dict[str, ast.stmt] = {}
    for base in CLASSES[name].bases:
        if isinstance(base, ast.Name) and base.id in CLASSES:
            merged |= members(base.id)
    for node in CLASSES[name].body:
        if isinstance(node, ast.FunctionDef):
            merged[node.name] = node
        elif isinstance(node, ast.AnnAssign):
            merged[ast.unparse(node.target)] = node
    return merged


@needs_extension
@pytest.mark.parametrize("name", ["RdKafka", "Consumer", "Producer", "Report"])
def test_stub_names_all_members_and_their_parameters(name: str) -> None:
    own = extension if name == "RdKafka" else getattr(extension, name)
    stub = members(name)
    assert {each for each in vars(own) if not each.startswith("__")} == set(stub)
    for each, node in stub.items():
        if isinstance(node, ast.FunctionDef):
            parameters = inspect.signature(getattr(own, each)).parameters
            arguments = [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
            assert [one for one in arguments if one != "self"] == [
                one for one in parameters if one != "self"
            ]


@needs_extension
def test_missing_library_has_version_zero() -> None:
    assert extension.load("/no/such/library.so") == 0
    assert extension.load("libc.so.6") == 0
    # The library in use stays.
    NativeConsumer(extension, {**NOWHERE, "group.id": "x"}).close()


@needs_extension
def test_rejected_settings_are_named_without_their_values() -> None:
    with pytest.raises(ConfigException, match=r'No such configuration property: "no\.such"'):
        NativeConsumer(extension, {**NOWHERE, "no.such": "secret"})
    with pytest.raises(ConfigException, match="transaction"):
        NativeProducer(extension, {
            **NOWHERE, "transactional.id": "x", "transaction.timeout.ms": "1000",
            "message.timeout.ms": "2000",
        })


@needs_extension
def test_closed_client_raises_instead_of_using_freed_memory() -> None:
    consumer = extension.Consumer({**NOWHERE, "group.id": "x"})
    consumer.close()
    consumer.close()
    consumer.wake()
    assert consumer.take_logs() == []
    for call in (lambda: consumer.consume(0, 1), lambda: consumer.assign([("t", 0, 0)]),
                 lambda: consumer.high_watermark("t", 0), lambda: consumer.ping(0, None)):
        with pytest.raises(RuntimeError, match="closed"):
            call()
    producer = extension.Producer({**NOWHERE, "transactional.id": "x"})
    producer.close()
    with pytest.raises(RuntimeError, match="closed"):
        producer.begin_transaction()


@needs_extension
@pytest.mark.parametrize("action", ["wake", "close"])
def test_waiting_consumer_returns_when_it_is_woken_or_closed(action: str) -> None:
    consumer = extension.Consumer({**NOWHERE, "group.id": "x"})
    timer = threading.Timer(0.1, getattr(consumer, action))
    timer.start()
    started = time.monotonic()
    assert consumer.consume(30_000, 100) == []
    assert time.monotonic() - started < 20
    timer.join()


@needs_extension
def test_errors_of_librdkafka_have_code_reason_and_flags() -> None:
    producer = extension.Producer({**NOWHERE, "transactional.id": "x"})
    with pytest.raises(extension.Error) as raised:
        producer.init_transactions(50)
    code, reason, fatal, retriable, requires_abort = raised.value.args
    assert (code, fatal, retriable, requires_abort) == (-185, False, True, False)
    assert "timed out" in reason.lower()
    producer.close()


@needs_extension
def test_lines_of_the_library_reach_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "penstock.kafka")
    consumer = NativeConsumer(extension, {**NOWHERE, "group.id": "x"})
    deadline = time.monotonic() + 30
    while "Connection refused" not in caplog.text or consumer.is_connected(0.01):
        assert time.monotonic() < deadline, caplog.text
        consumer.consume(0.05, 1)
    assert {record.levelno for record in caplog.records} <= {logging.INFO, logging.DEBUG}
    consumer.close()


@needs_extension
def test_columns_of_wrong_types_or_lengths_are_refused() -> None:
    producer = extension.Producer({**NOWHERE, "transactional.id": "x"})

    def produce(keys: object, values: object, times: object, headers: object) -> None:
        zero = ("zero", b"0")
        producer.produce("t", 0, keys, values, times, headers, 1, zero, 0, extension.Report())

    for wrong, kind in (
        ((["k"], [b"v"], None, None), TypeError), (([b"k"], [1], None, None), TypeError),
        (([b"k"], [b"v"], ["x"], None), TypeError), (([b"k"], [], None, None), ValueError),
        (([b"k"], [b"v"], [1], [[("a", "b")]]), TypeError), ((5, [b"v"], None, None), TypeError),
    ):
        with pytest.raises(kind):
            produce(*wrong)
    producer.close()


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@needs_extension
def test_forked_child_neither_uses_nor_destroys_a_client() -> None:
    program = (
        "import os, sys\n"
        "from penstock.log.kafka.client import native_io\n"
        "extension = native_io.find_native()\n"
        "settings = {'bootstrap.servers': '127.0.0.1:1', 'group.id': 'x'}\n"
        "consumer = extension.Consumer(settings)\n"
        "producer = extension.Producer({**settings, 'transactional.id': 'x'})\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        consumer.consume(0, 1)\n"
        "    except RuntimeError:\n"
        "        consumer.close()\n"
        "        del consumer, producer\n"
        "        os._exit(7)\n"
        "    os._exit(8)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
        "consumer.close()\n"
        "producer.close()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_settings_with_callbacks_of_python_are_not_native() -> None:
    plain = ClientSettings("localhost:9092", KafkaOptions()).writer(1_000_000, "app-1-1")
    settings = native_settings(plain)
    assert settings is not None
    assert settings["transaction.timeout.ms"] == "10000"
    assert settings["enable.idempotence"] == "true"
    assert "logger" not in settings
    for name, value in (
        ("oauth_cb", print), ("logger", logging.getLogger("x")), ("stats_cb", print),
        ("sasl.mechanism", "OAUTHBEARER"), ("default.topic.config", {}),
    ):
        assert native_settings({**plain, name: value}) is None


def test_timeouts_of_a_writer_are_shorter_than_its_transactions() -> None:
    options = KafkaOptions.of({"socket_timeout_ms": 60_000, "message_timeout_ms": "30000"})
    settings = ClientSettings("localhost:9092", options).writer(1_000_000, "app-1-1")
    assert settings["socket.timeout.ms"] == settings["message.timeout.ms"] == 9_900


@needs_extension
@pytest.mark.parametrize("pure", [False, True])
def test_records_are_checked_alike_with_and_without_the_extension(
    pure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pure:
        monkeypatch.setattr(native, "rdkafka", lambda: None)
    checked = check_columns(RecordColumns([None, b"abc", b""], (b"1", None, b"12"), [7, 3, 5]))
    assert (checked.size, checked.longest, checked.times) == (6, 5, (3, 7))
    assert check_columns(RecordColumns([], [], [])).times is None
    for keys, values, times in (
        (["k"], [b"v"], None), ([b"k"], [7], None), ([b"k"], [b"v"], [None]),
        ([b"k"], [b"v"], [-1]), ([b"k"], [b"v"], ["1"]),
    ):
        with pytest.raises(InvalidRecord):
            check_columns(RecordColumns(keys, values, times))  # type: ignore[arg-type]
