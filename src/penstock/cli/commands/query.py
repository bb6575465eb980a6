"""`penstock query`: prints the content of a store of an application."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from penstock.cli.codecs import CODECS, Codec, put_json
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


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers, "query", query, summary="print the content of a store",
        details="""
The command reads the committed state of an application, whether it runs or not. It reads the
replica in --state-dir, and the changes that the replica lacks from the log. Without a replica, for
example on another machine, it reads the whole changelog.

Without KEY, it prints all rows. Windows and sessions are printed as KEY@START/END; --from and --to
limit the starts of windows and the times of versions. The types of keys and values follow from the
serdes of the application, as far as the log has recorded them.""",
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
    parser.add_argument("--prefix", metavar="TEXT", help="keys that start with this text")
    parser.add_argument(
        "--from", dest="time_from", type=timestamp_ms, metavar="TIME",
        help="windows that start, or versions that are valid, at this time or later: ISO 8601, "
        "epoch milliseconds, or 15m (ago)",
    )
    parser.add_argument(
        "--to", dest="time_to", type=timestamp_ms, metavar="TIME", help="at this time or earlier"
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
        key=args.key is not None, range=args.range is not None, prefix=args.prefix is not None
    )
    with open_log_option(args) as log:
        source = OfflineSource(log, args.application, Path(args.state_dir))
        try:
            if args.store is None:
                _print_stores(source, args, terminal)
                return
            kind = _full_type(source, args.store)
            store = StoreQueries(source).store(args.store, kind, args.partition)
            key, value = _codecs(args, source.application.stores[args.store].serdes)
            rows = _rows(store, source.stores[args.store].kind, key, args)
            _print_rows(rows, key, value, args, terminal)
        finally:
            source.close()


def _print_stores(source: Any, args: argparse.Namespace, terminal: Terminal) -> None:
    rows = sorted(source.application.stores.items())
    if args.json:
        for name, info in rows:
            terminal.write_json({
                "name": name, "kind": info.kind, "partitions": info.partitions,
                "serdes": list(info.serdes),
            })
        return
    terminal.write_table(
        ("STORE", "KIND", "PARTITIONS", "KEY", "VALUE"),
        [(name, info.kind.replace("_", " "), info.partitions, *(*info.serdes, "", "")[:2])
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
        inferred = _CODEC_OF_SERDE.get(name, name)
        found.append(CODECS[chosen or (inferred if inferred in CODECS else "string")])
    return found[0], found[1]


def _rows(store: Any, kind: str, codec: Codec, args: argparse.Namespace) -> Iterator[_Row]:
    key = None if args.key is None else codec.from_text(args.key)
    bounds: tuple[bytes | None, bytes | None] = (None, None)
    if args.range is not None:
        bounds = codec.from_text(args.range[0]), codec.from_text(args.range[1])
    times = args.time_from or 0, _END_OF_TIME if args.time_to is None else args.time_to
    if "versioned" in kind:
        return _versions(store, key, args)
    if args.as_of is not None:
        raise UsageError(f"--as-of is for versioned stores. Store '{args.store}' is not.")
    if "window" in kind:
        if key is not None:
            bounds = key, key
        return _windows(store.fetch(*bounds, *times))
    if "session" in kind:
        if key is not None:
            bounds = key, key
        return _windows(store.fetch(*bounds))
    if args.time_from is not None or args.time_to is not None:
        raise UsageError(f"Store '{args.store}' has no windows. Remove --from and --to.")
    if key is not None:
        found = store.get(key)
        return iter(() if found is None else [_row(key, found)])
    if args.prefix is not None:
        return (_row(*each) for each in store.prefix_scan(args.prefix.encode(), bytes))
    return (_row(*each) for each in store.range(*bounds))


def _row(key: bytes, value: Any) -> _Row:
    timestamp = getattr(value, "timestamp", None)
    return _Row(key, value if timestamp is None else value.value, timestamp)


def _windows(found: Any) -> Iterator[_Row]:
    for windowed, value in found:
        row = _row(windowed.key, value)
        yield row._replace(start=windowed.window.start, end=windowed.window.end)


def _versions(store: Any, key: bytes | None, args: argparse.Namespace) -> Iterator[_Row]:
    if key is None:
        raise UsageError(f"Store '{args.store}' is versioned: give a KEY.")
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
            text = _as_text(row, key, value, only_value=args.key is not None)
            if terminal.out_is_terminal:
                text = escape_control_characters(text)
            terminal.write_line(text)
        if count == args.max:
            break
    if not count and args.key is not None:
        raise CommandError(f"Store '{args.store}' has no key '{args.key}'.")


def _as_text(row: _Row, key: Codec, value: Codec, *, only_value: bool) -> str:
    text = value.to_text(row.value)
    if row.start is not None:
        return f"{key.to_text(row.key)}@{row.start}/{row.end}\t{text}"
    return text if only_value else f"{key.to_text(row.key)}\t{text}"


def _as_json(row: _Row, key: Codec, value: Codec) -> dict[str, Any]:
    found: dict[str, Any] = {}
    put_json(found, "key", row.key, key)
    put_json(found, "value", row.value, value)
    optional = row.timestamp, row.start, row.end, row.valid_to
    names = ("timestamp", "start", "end", "valid_to")
    return found | {
        name: each for name, each in zip(names, optional, strict=True) if each is not None
    }
