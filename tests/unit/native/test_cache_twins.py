"""The native and the Python record cache behave the same under random commands."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock import native
from penstock.record import NO_HEADERS, CurrentRecord, Headers, RecordContext
from penstock.stores.cache import entries as cache_entries

if native.core is None:
    pytest.skip(f"penstock runs {native.in_use()}", allow_module_level=True)

core = native.core
HEADERS = Headers([("name", b"value"), ("none", None)])


class Twin:
    """One of the two caches, with the entries of its flushes."""

    def __init__(self, words: Any, max_bytes: int, time_at: int | None) -> None:
        self.words = words
        self.flushed: list[Any] = []
        self.current = CurrentRecord()
        self.budget = words.CacheBudget(max_bytes)
        self.cache = words.CacheEntries(self.budget, self.flush, 3, time_at)
        self.other = words.CacheEntries(self.budget, self.flush, 0, None)
        self.cache.pend(int)
        self.writes_back = False

    def flush(self, changes: list[Any]) -> None:
        self.flushed.append([
            (entry.name, self.cache.stored(entry), entry.size, entry.writes, entry.at,
             entry.timestamp, entry.headers, entry.sent)
            for entry in changes
        ])
        if self.writes_back and changes:
            # A listener may write to the cache during its flush.
            self.writes_back = False
            self.cache.put(changes[0].name, b"again", 5, self.current)

    def seen(self) -> Any:
        entries = {name: self.cache.find(name) for name in self.cache.names()}
        return (
            {name: (entry.size, bool(entry.writes), self.cache.stored(entry))
             for name, entry in entries.items()},
            self.cache.size, self.other.size, self.budget.size, self.budget.evictions,
            self.cache.oldest, self.cache.newest, len(self.cache), self.flushed,
        )


def command(chance: random.Random, twins: tuple[Twin, Twin], number: int) -> None:
    key = b"%d" % chance.randrange(30) + chance.randrange(5_000).to_bytes(8, "big")[-8:] * 1
    kind = chance.random()
    headers = HEADERS if chance.random() < 0.1 else NO_HEADERS
    write = chance.choice((None, b"x" * chance.randrange(30), 7 * number))
    known = chance.choice(twins[0].cache.names() or [key])
    key = known if chance.random() < 0.7 else key
    for twin in twins:
        twin.current.set_context(RecordContext("topic", 0, number, number, headers))
        cache = twin.cache
        if kind < 0.5:
            if isinstance(write, int):
                cache.put(key, twin.words.PENDING, 16, twin.current, write, number)
            else:
                cache.put(key, write, len(write or b""), twin.current)
        elif kind < 0.6:
            twin.other.put(key, b"value", 5, twin.current)
        elif kind < 0.75:
            if cache.get(key) is None:
                cache.keep(key, b"kept")
        elif kind < 0.9:
            found = cache.find(key)
            if found is not None:
                cache.use(found)
        elif kind < 0.93:
            twin.writes_back = True
        elif kind < 0.97:
            cache.flush()
        elif kind < 0.975:
            cache.clear()


@pytest.mark.parametrize("max_bytes", [0, 300, 2_000, 1_000_000])
@pytest.mark.parametrize("time_at", [None, -8])
def test_both_caches_hold_flush_and_evict_the_same(max_bytes: int, time_at: int | None) -> None:
    for seed in range(12):
        chance = random.Random(seed)
        twins = (Twin(cache_entries, max_bytes, time_at), Twin(core, max_bytes, time_at))
        for number in range(400):
            command(chance, twins, number)
            assert twins[1].seen() == twins[0].seen(), (seed, number)


def test_both_caches_shorten_the_list_of_uses_alike() -> None:
    twins = (Twin(cache_entries, 1_500, None), Twin(core, 1_500, None))
    for twin in twins:
        twin.current.set_context(RecordContext("topic", 0, 0, 0, NO_HEADERS))
        for number in range(20_000):
            key = b"%d" % (number * number % 17)
            twin.cache.put(key, b"v", 1, twin.current) if number % 3 else twin.cache.get(key)
        for number in range(100, 120):
            twin.cache.put(b"%d" % number, b"v", 1, twin.current)
    assert twins[1].seen() == twins[0].seen()


def test_wrong_arguments_are_rejected() -> None:
    with pytest.raises(ValueError, match="must not be negative: -1"):
        core.CacheBudget(-1)
    cache = Twin(core, 1_000, -8).cache
    with pytest.raises(ValueError, match="has no time at -8"):
        cache.put(b"short", None, 0, CurrentRecord())
    with pytest.raises(TypeError):
        cache.put("text", None, 0, CurrentRecord())
    with pytest.raises(TypeError, match="not an entry"):
        cache.use(object())
    with pytest.raises(TypeError):
        cache.put(b"12345678", None, 0, object())
    with pytest.raises(TypeError, match="load takes 1 positional"):
        core.keyed_load(str, str, str)()
