"""Calls the functions of the native core with random arguments. Run by `test_random_arguments.py`.

Exceptions are expected. The process must survive, also with AddressSanitizer.

    python random_arguments.py SEED ROUNDS
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from penstock.native import core
from penstock.record import NO_HEADERS, CurrentRecord, RecordContext
from penstock.windows import Window, Windowed

assert core is not None
chance = random.Random(int(sys.argv[1]))
current = CurrentRecord()
current.set_context(RecordContext("topic", 0, 0, 0, NO_HEADERS))
NUMBERS = (0, 1, -1, 8, -8, -12, 1_000, -1_000, 2**62, 2**63 - 1, -(2**63))
FUNCTIONS = [
    function for name, function in vars(core).items()
    if callable(function) and not isinstance(function, type) and not name.startswith("_")
]


def some_bytes() -> bytes:
    return chance.randbytes(chance.choice((0, 1, 7, 8, 9, 12, 19, 20, 21, 40, 300)))


def number() -> int:
    return chance.choice(NUMBERS)


def anything() -> Any:
    return chance.choice((
        None, number(), 2**64, 1.5, "text", some_bytes(), bytearray(b"abc"), [], (), {}, object(),
        [some_bytes()], (some_bytes(), some_bytes()), [(some_bytes(), None)], Window(0, 1),
        Windowed("a", Window(0, 10)), NO_HEADERS, current,
    ))


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    with suppress(Exception):
        return function(*arguments)
    return None


def call_with_anything() -> None:
    for function in FUNCTIONS:
        made = call(function, *[anything() for _ in range(chance.randrange(9))])
        if callable(made):
            call(made, *[anything() for _ in range(chance.randrange(6))])


def convert_rows() -> None:
    rows = [some_bytes() for _ in range(chance.randrange(6))]
    values = [some_bytes() for _ in rows]
    call(core.segmented_rows, rows, number(), number())
    call(core.times_of_rows, rows, number())
    call(core.timestamped_values, rows, [number() for _ in rows])
    call(core.timestamped_changes, "store", rows, values, number(), NO_HEADERS)
    call(core.sorted_changes, list(zip(rows, values, strict=True)), some_bytes(), number())
    call(core.measure_columns, rows, values, [0 for _ in rows], None, (number(), number()), 0)
    outputs = [("topic", 0, key, value, 0, NO_HEADERS) for key, value in zip(rows, values,
                                                                             strict=True)]
    call(core.measure_outputs, outputs, number(), number())


def use_a_cache() -> None:
    flushed: list[Any] = []
    budget = core.CacheBudget(chance.choice((0, 200, 1_000_000)))
    cache = core.CacheEntries(budget, flushed.extend, 3, chance.choice((None, -8, -12, 0)))
    kind = chance.choice((int, None))
    codec = (lambda value: str(value).encode(), bytes, lambda value: str(value).encode(),
             bytes.decode, kind, True)
    below = lambda row: chance.choice((None, some_bytes()))  # noqa: E731
    load, save = core.timestamped_rows(cache, current, below, codec, True)
    results = (None, 1, "text", 2**70, {"a": [1]})
    fold = core.folding(
        cache, current, below, codec, True, int, lambda *_: chance.choice(results)
    )
    listen = core.row_listener(
        lambda *_: None, bytes.decode, bytes, lambda row: (row, None), Windowed, Window, number()
    )
    for _ in range(20):
        call(cache.put, some_bytes(), chance.choice((None, some_bytes())), number(), current)
        call(cache.get, some_bytes())
        call(cache.keep, some_bytes(), some_bytes())
        call(load, some_bytes())
        call(save, some_bytes(), "key", chance.choice(results), number())
        call(fold, some_bytes(), "key", "value", number())
        if chance.random() < 0.2:
            call(cache.flush)
        for entry in flushed[-3:]:
            call(listen, some_bytes(), chance.choice((None, some_bytes())), some_bytes(), entry)
            call(cache.use, entry)
            call(cache.stored, entry)
    call(core.tell_changes, flushed, current, listen)
    call(core.stored_rows, cache, flushed)


for _ in range(int(sys.argv[2])):
    call_with_anything()
    convert_rows()
    use_a_cache()
