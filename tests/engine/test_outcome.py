"""Outcomes and failures are unchanged after encoding and decoding."""

from __future__ import annotations

import logging

import msgspec
import pyarrow as pa
import pytest

from penstock.engine.packaging.failure import Failure
from penstock.engine.plan.task_records import TaskRecord, decode_task
from penstock.engine.worker.blocks import ConsumedBlock
from penstock.engine.worker.log_capture import LogCapture
from penstock.engine.worker.log_lines import LogLine
from penstock.engine.worker.outcome import (
    RestoredStore,
    SentBlock,
    TaskOutcome,
    count_records,
    decode_outcome,
    decode_outcomes,
    encode_outcome,
)
from penstock.engine.worker.record_groups import group_records
from penstock.errors import ProcessingFailedException, StreamsException
from penstock.log.types import Append, StagedRecords
from penstock.record import NO_HEADERS, Headers, TaskId
from penstock.task.punctuation import ScheduleState
from penstock.task.result import TaskState

#: A file name that is not UTF-8, as Python represents it, and its escaped form.
NAME = b"caf\xe9".decode("utf-8", "surrogateescape")
ESCAPED = "caf\\udce9"


def records(*values: bytes, headers: Headers = NO_HEADERS) -> pa.RecordBatch:
    rows = [("t", 0, b"k", value, 5, headers) for value in values]
    return group_records(rows).records


def test_decoded_outcome_equals_the_original() -> None:
    state = TaskState(
        9, {("in", 1): 9}, {"clock": 3}, {"store": {"observed": 4}},
        (ScheduleState("node", 1, 10, False),), (ScheduleState("node", 2, 11, True),), 5,
    )
    outcome = TaskOutcome(
        TaskId(1, 2), TaskRecord(4, 17, state, {"store": 8}, {"direct": 3}, 99),
        outputs=(
            Append("out", 0, records(b"1", b"2")),
            Append("out", 1, StagedRecords(3, "token", 7)),
            Append("out", 2, records(b"3", headers=Headers((("h", None),)))),
        ),
        changes=(Append("changes", 2, records(b"4")),),
        offsets={("in", 1): 12},
        sent=(SentBlock(TaskId(2, 0), "direct", 4),),
        consumed=(ConsumedBlock(TaskId(0, 0), 16, "other", 2),),
        records_consumed=6,
        read={"in": (6, 600)},
        printed=((None, "line"), ("file", "line")),
        logged=(LogLine(30, "user", "text"),),
        restored=(RestoredStore("store", "changes", 2, 0, 8, 8),),
        counters={"node/dropped": 1},
        commit_requested=True,
        published=5,
    )
    assert decode_outcome(encode_outcome(outcome)) == outcome
    assert count_records(outcome.outputs) == 10
    assert outcome.staged_records() == [StagedRecords(3, "token", 7)]


def test_outcomes_are_in_the_order_of_their_tasks() -> None:
    tasks = [TaskId(1, 0), TaskId(0, 10), TaskId(0, 2)]
    blocks = [encode_outcome(TaskOutcome(task, TaskRecord(1, 1))) for task in tasks]
    assert [each.task_id for each in decode_outcomes(blocks)] == sorted(tasks)


class NotPicklable(Exception):
    """Cannot be created from its arguments."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise error from cause
    except Exception as caught:
        return caught


def transfer(failure: Failure) -> Exception:
    outcome = TaskOutcome(TaskId(0, 1), TaskRecord(1, 1), failure=failure)
    found = decode_outcome(encode_outcome(outcome)).failure
    assert found is not None
    return found.exception()


def broken(value: str) -> str:
    return value + 1  # type: ignore[operator]


def failed_in_user_code(key: object = "k") -> ProcessingFailedException:
    try:
        broken("x")
    except TypeError as error:
        cause = error
    failure = ProcessingFailedException(
        "it failed", task_id="0_1", processor="node", topic="in", partition=1, offset=7, key=key
    )
    found = raised(failure, cause)
    assert isinstance(found, ProcessingFailedException)
    return found


def test_failure_names_the_record_and_shows_user_code() -> None:
    error = transfer(Failure.of("0_1", failed_in_user_code()))
    assert isinstance(error, ProcessingFailedException)
    assert (error.processor, error.topic, error.partition, error.offset, error.key) == (
        "node", "in", 1, 7, "k"
    )
    assert isinstance(error.__cause__, TypeError)
    shown = error.user_traceback  # type: ignore[attr-defined]
    assert 'return value + 1' in shown
    assert "TypeError" in shown
    assert error.__notes__ == [f"In task 0_1:\n{shown.rstrip()}"]


def test_failure_outside_user_code_keeps_all_frames() -> None:
    with pytest.raises(msgspec.DecodeError) as caught:
        decode_task(b"")
    error = caught.value
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next
    assert "in decode_task" in Failure.of("0_1", error).traceback


def test_cause_that_cannot_be_pickled_is_dropped() -> None:
    error = transfer(Failure.of("0_1", raised(StreamsException("it failed"), NotPicklable(1, 2))))
    assert str(error) == "it failed"
    assert error.__cause__ is None
    assert "NotPicklable: 1 and 2" in error.user_traceback  # type: ignore[attr-defined]


def test_exception_that_cannot_be_pickled_is_described() -> None:
    error = transfer(Failure.of("0_1", raised(NotPicklable(1, 2))))
    assert type(error) is StreamsException
    assert str(error) == "Task 0_1 failed: NotPicklable: 1 and 2"


class BrokenKey:
    def __repr__(self) -> str:
        raise RuntimeError

    def __reduce__(self) -> str:
        raise RuntimeError


def test_key_without_a_representation_is_described() -> None:
    error = transfer(Failure.of("0_1", failed_in_user_code(key=BrokenKey())))
    assert isinstance(error, ProcessingFailedException)
    assert error.key == "<BrokenKey without a representation>"
    assert error.processor == "node"


@pytest.mark.parametrize("level", [logging.INFO, logging.ERROR])
def test_levels_of_log_lines_are_kept(level: int) -> None:
    outcome = TaskOutcome(TaskId(0, 0), TaskRecord(1, 1), logged=(LogLine(level, "a.b", "x"),))
    assert decode_outcome(encode_outcome(outcome)).logged == (LogLine(level, "a.b", "x"),)


def test_surrogates_in_printed_and_logged_text_are_escaped() -> None:
    with LogCapture(logging.WARNING) as capture:
        logging.getLogger("mine").warning("no file %s", NAME)
    outcome = TaskOutcome(
        TaskId(0, 0), TaskRecord(1, 1), printed=((None, NAME), (NAME, "\u00e9")),
        logged=capture.lines(),
    )
    found = decode_outcome(encode_outcome(outcome))
    assert found.printed == ((None, ESCAPED), (ESCAPED, "\u00e9"))
    assert [line[:3] for line in found.logged] == [(logging.WARNING, "mine", f"no file {ESCAPED}")]


def test_surrogates_in_a_pickled_exception_are_kept() -> None:
    error = transfer(Failure.of("0_1", raised(ValueError(NAME))))
    assert isinstance(error, ValueError)
    assert str(error) == NAME
    assert error.user_traceback.endswith(f"ValueError: {ESCAPED}\n")  # type: ignore[attr-defined]


class SurrogateKey:
    """A key with surrogates in its representation, which cannot be pickled."""

    def __repr__(self) -> str:
        return NAME

    def __reduce__(self) -> str:
        raise RuntimeError


def test_surrogates_in_a_described_exception_are_escaped() -> None:
    class Own(NotPicklable):
        def __init__(self, name: str, key: object) -> None:
            Exception.__init__(self, name, key)

        def __str__(self) -> str:
            return str(self.args[0])

    error = transfer(Failure.of("0_1", raised(Own(NAME, SurrogateKey()))))
    assert str(error) == f"Task 0_1 failed: {Own.__qualname__}: {ESCAPED}"
    error = transfer(Failure.of("0_1", failed_in_user_code(key=SurrogateKey())))
    assert isinstance(error, ProcessingFailedException)
    assert error.key == ESCAPED
