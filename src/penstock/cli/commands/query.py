"""`penstock query`: prints the content of a store of an application."""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Iterable, Iterator
from operator import attrgetter, methodcaller
from pathlib import Path
from typing import Any, NamedTuple

from penstock.cli.codecs import CODECS, Codec, encode_text, put_json
from penstock.cli.errors import CommandError, UsageError
from penstock.cli.log_option import open_log_option
from penstock.cli.parsing import (
    Subparsers,
    add_command,
    add_json_option,
    non_negative_int,
    positive_int,
    reject_combination,
    timestamp_ms,
)
from penstock.cli.terminal import Terminal, escape_control_characters

#: The names of serdes whose bytes a codec of another name reads.
_CODEC_OF_SERDE = {"byte_array": "bytes", "byte_buffer": "bytes", "int": "integer"}
#: The codecs whose bytes are the text of a key, so that a part of the text is a part of the bytes.
_TEXT_CODECS = ("string", "json", "uuid")
_DEFAULT_STATE_DIR = "penstock-state"
_END_OF_TIME = 2**63 - 1


class _Row(NamedTuple):
    """One row of a store. `start` and `end` are those of a window, `valid_to` that of a version."""

    key: bytes
    value: bytes
    timestamp: int | None = None
    start: int | None = None
    end: int | None = None
    valid_to: int | None = None


_key_of = attrgetter("key")
_key_and_start = attrgetter("key", "start")


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers, "query", query, summary="print the content of a store",
        details="""
The command reads the committed state of an application, whether it runs or not. It reads the
replica in --state-dir, and the changes that the replica lacks from the log. Without a replica, for
example on another machine, it reads the whole changelog.

Without KEY, it prints all rows, in the order of the serialized keys. Windows and sessions are
printed as KEY@START/END; --from and --to select windows by their starts, sessions that overlap
this time, and versions that are valid in it, which are printed as KEY@FROM/TO. The types of keys
and values follow from the serdes of the application, as far as the log has recorded them.""",
        examples="""
  penstock query orders counts
  penstock query orders counts tea
  penstock query orders counts --range a m --json
  penstock query orders counts-by-minute tea --from 15m
  penstock query orders prices tea --as-of 2026-11-17T10:00:00Z
""",
    )
    parser.add_argument("application", metavar="APP", help="the application id")
    parser.add_argument(
        "store", metavar="STORE", nargs="?", help="the store; without it, the stores are listed"
    )
    parser.add_argument("key", metavar="KEY", nargs="?", help="print only this key")
    parser.add_argument(
        "--range", nargs=2, metavar=("FROM", "TO"), help="keys from FROM to TO, both included"
    )
    parser.add_argument(
        "--prefix", metavar="TEXT", help="keys that start with this text; base64 for bytes"
    )
    parser.add_argument(
        "--from", dest="time_from", type=timestamp_ms, metavar="TIME",
        help="windows that start, sessions that end, or versions that are valid at this time or "
        "later: ISO 8601, epoch milliseconds, or 15m (ago)",
    )
    parser.add_argument(
        "--to", dest="time_to", type=timestamp_ms, metavar="TIME",
        help="windows and sessions that start, or versions that are valid, at this time or earlier",
    )
    parser.add_argument(
        "--window", nargs=2, type=timestamp_ms, metavar=("FROM", "TO"),
        help="the same as --from FROM --to TO",
    )
    parser.add_argument(
        "--as-of", type=timestamp_ms, metavar="TIME", help="the version of KEY at this time"
    )
    parser.add_argument(
        "--partition", type=non_negative_int, metavar="N", help="only this partition of the store"
    )
    parser.add_argument("--max", type=positive_int, metavar="N", help="end after this many rows")
    parser.add_argument(
        "--state-dir", metavar="DIR", default=_DEFAULT_STATE_DIR,
        help=f"the state directory of the application (default: {_DEFAULT_STATE_DIR})",
    )
    parser.add_argument(
        "--key-type", choices=CODECS, metavar="TYPE", help=f"type of the keys: {', '.join(CODECS)}"
    )
    parser.add_argument(
        "--value-type", choices=CODECS, metavar="TYPE", help="type of the values"
    )
    add_json_option(parser)


def query(args: argparse.Namespace, terminal: Terminal) -> None:
    """Print the rows of a store, or the stores of an application."""
    # The other commands start faster without these.
    from penstock.queries.offline import OfflineSource  # noqa: PLC0415
    from penstock.queries.service import StoreQueries  # noqa: PLC0415

    reject_combination(
        KEY=args.key is not None, range=args.range is not None, prefix=args.prefix is not None
    )
    reject_combination(**{"from": args.time_from is not None}, window=args.window is not None)
    reject_combination(to=args.time_to is not None, window=args.window is not None)
    if args.window is not None:
        args.time_from, args.time_to = args.window
    with open_log_option(args) as log:
        source = OfflineSource(log, args.application, Path(args.state_dir))
        try:
            if args.store is None:
                _print_stores(source, args, terminal)
                return
            kind = _full_type(source, args.store)
            if args.partition is not None and args.store in source.application.global_stores:
                raise UsageError(
                    f"Store '{args.store}' is global: it has all partitions of its topic. Remove "
                    "--partition."
                )
            queries = StoreQueries(source)
            store = queries.store(args.store, kind, args.partition)
            info = source.stores[args.store]
            partitions = range(info.partitions) if args.partition is None else [args.partition]
            parts = (queries.store(args.store, kind, each) for each in partitions)
            key, value = _codecs(args, source.application.all_stores[args.store].serdes)
            _check_options(info.kind, key, args)
            _print_rows(_rows(store, parts, info.kind, key, args), key, value, args, terminal)
        finally:
            source.close()


def _print_stores(source: Any, args: argparse.Namespace, terminal: Terminal) -> None:
    rows = sorted(source.application.all_stores.items())
    shared = source.application.global_stores
    if args.json:
        for name, info in rows:
            terminal.write_json({
                "name": name, "kind": info.kind, "partitions": info.partitions,
                "serdes": list(info.serdes), "is_global": name in shared,
            })
        return
    terminal.write_table(
        ("STORE", "KIND", "PARTITIONS", "KEY", "VALUE"),
        [(name, f"{'global ' if name in shared else ''}{info.kind.replace('_', ' ')}",
          info.partitions, *(*info.serdes, "", "")[:2])
         for name, info in rows],
    )


def _full_type(source: Any, store: str) -> Any:
    """The type of the store that shows the most: timestamps, if the store has them."""
    from penstock.queries.store_types import QueryableStoreTypes  # noqa: PLC0415

    info = source.stores.get(store)
    kind = "" if info is None else info.kind
    if kind.startswith("timestamped_key_value"):
        return QueryableStoreTypes.timestamped_key_value_store()
    if kind.startswith("timestamped_window"):
        return QueryableStoreTypes.timestamped_window_store()
    return None


def _codecs(args: argparse.Namespace, serdes: tuple[str, ...]) -> tuple[Codec, Codec]:
    names = (*serdes, "", "")[:2]
    given = args.key_type, args.value_type
    found = []
    for name, chosen in zip(names, given, strict=True):
        # "json(Order)" is JSON, too.
        base = name.partition("(")[0]
        inferred = _CODEC_OF_SERDE.get(base, base)
        found.append(CODECS[chosen or (inferred if inferred in CODECS else "string")])
    return found[0], found[1]


def _check_options(kind: str, codec: Codec, args: argparse.Namespace) -> None:
    """Refuse the options that a kind of store does not support."""
    store = f"Store '{args.store}'"
    has_times = args.time_from is not None or args.time_to is not None
    if "versioned" in kind:
        if args.key is None:
            raise UsageError(
                f"{store} is versioned: give a KEY. --as-of selects one version of it, --from and "
                "--to select several."
            )
        if args.as_of is not None and has_times:
            raise UsageError(
                f"--as-of cannot be combined with --from and --to. {store} has one version at a "
                "time and several from one time to another."
            )
    elif args.as_of is not None:
        others = "--from and --to" if _has_windows(kind) else "KEY, --range and --prefix"
        raise UsageError(
            f"--as-of is for versioned stores. {store} is not: it supports {others}."
        )
    elif has_times and not _has_windows(kind):
        raise UsageError(
            f"{store} has no windows. Remove --from and --to. It supports KEY, --range and "
            "--prefix."
        )
    if args.prefix is not None and codec.name not in (*_TEXT_CODECS, "bytes"):
        raise UsageError(
            f"--prefix compares the text of keys. {store} has keys of type {codec.name}: use KEY "
            "or --range."
        )


def _has_windows(kind: str) -> bool:
    return "window" in kind or "session" in kind


def _rows(
    store: Any, parts: Iterable[Any], kind: str, codec: Codec, args: argparse.Namespace
) -> Iterator[_Row]:
    """The rows that the options select, by key. `parts`: the partitions of the store."""
    key = None if args.key is None else codec.from_text(args.key)
    if "versioned" in kind:
        return _versions(store, key, args)
    if _has_windows(kind):
        found = (row for part in parts for row in _windows(part, kind, key, codec, args))
        # A partition returns them by time first.
        if args.max is not None:
            return iter(heapq.nsmallest(args.max, found, _key_and_start))
        return iter(sorted(found, key=_key_and_start))
    if key is not None:
        value = store.get(key)
        return iter(() if value is None else [_row(key, value)])
    if args.prefix is not None:
        scan = methodcaller("prefix_scan", _prefix(codec, args), bytes)
    else:
        scan = methodcaller("range", *_bounds(codec, args))
    return heapq.merge(*((_row(*each) for each in scan(part)) for part in parts), key=_key_of)


def _bounds(codec: Codec, args: argparse.Namespace) -> tuple[bytes | None, bytes | None]:
    if args.range is None:
        return None, None
    return codec.from_text(args.range[0]), codec.from_text(args.range[1])


def _prefix(codec: Codec, args: argparse.Namespace) -> bytes:
    if codec.name in _TEXT_CODECS:
        return encode_text(args.prefix)
    return codec.from_text(args.prefix)


def _windows(
    store: Any, kind: str, key: bytes | None, codec: Codec, args: argparse.Namespace
) -> Iterator[_Row]:
    """The windows or sessions of a partition."""
    bounds = _bounds(codec, args) if key is None else (key, key)
    times = args.time_from or 0, _END_OF_TIME if args.time_to is None else args.time_to
    prefix = b"" if args.prefix is None else _prefix(codec, args)
    fetch = store.find_sessions if "session" in kind else store.fetch
    for windowed, value in fetch(*bounds, *times):
        if windowed.key.startswith(prefix):
            start, end = windowed.window
            yield _row(windowed.key, value)._replace(start=start, end=end)


def _row(key: bytes, value: Any) -> _Row:
    timestamp = getattr(value, "timestamp", None)
    return _Row(key, value if timestamp is None else value.value, timestamp)


def _versions(store: Any, key: Any, args: argparse.Namespace) -> Iterator[_Row]:
    if args.time_from is not None or args.time_to is not None:
        found = store.versions(key, args.time_from, args.time_to)
    else:
        version = store.get(key, as_of=args.as_of)
        found = [] if version is None else [version]
    for each in found:
        yield _Row(key, each.value, each.timestamp, valid_to=each.valid_to)


def _print_rows(
    rows: Iterator[_Row], key: Codec, value: Codec, args: argparse.Namespace, terminal: Terminal
) -> None:
    count = 0
    for row in rows:
        count += 1
        if args.json:
            terminal.write_json(_as_json(row, key, value))
        else:
            text = _as_text(row, key, value, args)
            if terminal.out_is_terminal:
                text = escape_control_characters(text)
            terminal.write_line(text)
        if count == args.max:
            break
    if not count and args.key is not None:
        times = (args.time_from, args.time_to, args.as_of)
        limited = " at this time" if any(each is not None for each in times) else ""
        raise CommandError(f"Store '{args.store}' has no key '{args.key}'{limited}.")


def _as_text(row: _Row, key: Codec, value: Codec, args: argparse.Namespace) -> str:
    text = value.to_text(row.value)
    if row.start is not None:
        return f"{key.to_text(row.key)}@{row.start}/{row.end}\t{text}"
    if args.time_from is not None or args.time_to is not None:
        # One of several versions.
        valid_to = "" if row.valid_to is None else row.valid_to
        return f"{key.to_text(row.key)}@{row.timestamp}/{valid_to}\t{text}"
    return text if args.key is not None else f"{key.to_text(row.key)}\t{text}"


def _as_json(row: _Row, key: Codec, value: Codec) -> dict[str, Any]:
    found: dict[str, Any] = {}
    put_json(found, "key", row.key, key)
    put_json(found, "value", row.value, value)
    optional = row.timestamp, row.start, row.end, row.valid_to
    names = ("timestamp", "start", "end", "valid_to")
    return found | {
        name: each for name, each in zip(names, optional, strict=True) if each is not None
    }
