"""Argument types, and the options that all commands share."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from penstock.cli.errors import UsageError
from penstock.clock import wall_clock_ms

if TYPE_CHECKING:
    from penstock.cli.terminal import Terminal

CommandFunction: TypeAlias = "Callable[[argparse.Namespace, Terminal], None]"
#: The result of `add_subparsers`, for which argparse has no public name.
Subparsers: TypeAlias = "argparse._SubParsersAction[Parser]"

LOG_VARIABLE = "PENSTOCK_LOG"
LOG_CONFIG_VARIABLE = "PENSTOCK_LOG_CONFIG"
_DURATION = re.compile(r"(\d+)(ms|s|m|h|d)")
_SPARK_MASTER = re.compile(r"inline|local|local\[.+\]|local-cluster\[.+\]|yarn|(spark|k8s)://.+")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class _HelpFormatter(argparse.HelpFormatter):
    """Wraps paragraphs to the width of the terminal and leaves examples unchanged."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return text
        return "\n\n".join(
            textwrap.fill(" ".join(paragraph.split()), width) for paragraph in text.split("\n\n")
        )


class Parser(argparse.ArgumentParser):
    """A parser that rejects abbreviations, so that a new option never breaks a script."""

    def __init__(self, *, examples: str = "", **settings: Any) -> None:
        settings.setdefault("allow_abbrev", False)
        settings.setdefault("formatter_class", _HelpFormatter)
        if examples:
            settings["epilog"] = f"examples:\n{examples.strip(chr(10))}"
        super().__init__(**settings)

    def error(self, message: str) -> NoReturn:
        """Point to the help instead of printing the usage."""
        self.exit(2, f"penstock: error: {message}\nSee '{self.prog} --help'.\n")


def add_common_options(parser: argparse.ArgumentParser, *, log: bool = True) -> None:
    """Add the options that are accepted before and after the name of a command."""
    # A default of the subparser would override a value given before the name of the command.
    if log:
        parser.add_argument(
            "--log", metavar="PATH", default=argparse.SUPPRESS,
            help="the log: a file, or kafka://HOST:PORT (default: the environment variable "
            f"{LOG_VARIABLE})",
        )
        parser.add_argument(
            "--log-config", metavar="FILE", default=argparse.SUPPRESS,
            help="a properties file with librdkafka settings for a kafka:// log, such as "
            f"security.protocol (default: the environment variable {LOG_CONFIG_VARIABLE})",
        )
    parser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS,
        help="show the traceback of an error",
    )


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object per line, for scripts"
    )


def add_config_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for settings."""
    parser.add_argument(
        "--config", metavar="FILE", action="append", default=[],
        help="a properties file with Kafka's setting names (may be repeated)",
    )
    parser.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], type=name_and_value,
        help="a setting (may be repeated)",
    )


def add_command(
    subparsers: Subparsers, name: str, run: CommandFunction | None, *, summary: str,
    details: str = "", examples: str = "", log: bool = True,
) -> Parser:
    """Add a command with its help. `run` is None for a command that has subcommands."""
    parser = subparsers.add_parser(
        name, help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.\n\n{details.strip()}".rstrip(),
        examples=examples,
    )
    add_common_options(parser, log=log)
    if run is not None:
        parser.set_defaults(run=run, prog=parser.prog)
    return parser


def add_subcommands(parser: Parser) -> Subparsers:
    """Let the parser require one of the commands that are added to the result."""
    return parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)


# Argument types. argparse shows the message of an ArgumentTypeError.


def non_negative_int(text: str) -> int:
    """Parse an integer of 0 or more."""
    if not re.fullmatch(r"\d+", text):
        raise argparse.ArgumentTypeError(f"'{text}' is not an integer of 0 or more")
    return int(text)


def positive_int(text: str) -> int:
    """Parse an integer of 1 or more."""
    number = non_negative_int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def signed_int(text: str) -> int:
    """Parse an integer with an optional sign."""
    if not re.fullmatch(r"[+-]?\d+", text):
        raise argparse.ArgumentTypeError(f"'{text}' is not an integer")
    return int(text)


def timestamp_ms(text: str) -> int:
    """Parse a time into epoch milliseconds: `now`, milliseconds, ISO 8601, or `15m` (ago)."""
    now = wall_clock_ms()
    if text == "now":
        return now
    if re.fullmatch(r"\d+", text):
        return int(text)
    if _DURATION.fullmatch(text):
        return max(0, now - duration_ms(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a time; use 2026-01-31T12:00:00Z, epoch milliseconds, 15m (15 "
            "minutes ago) or now"
        ) from None
    if moment.tzinfo is None:
        # Local time, which users read from their clock.
        moment = moment.astimezone()
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    milliseconds = since.days * 86_400_000 + since.seconds * 1_000 + since.microseconds // 1_000
    if milliseconds < 0:
        raise argparse.ArgumentTypeError(f"'{text}' is before 1970")
    return milliseconds


def duration_ms(text: str) -> int:
    """Parse a duration into milliseconds: `60000` or `1m`."""
    if re.fullmatch(r"\d+", text):
        return int(text)
    match = _DURATION.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not a duration; use milliseconds or 15m")
    return int(match[1]) * _UNIT_MS[match[2]]


def name_and_value(text: str) -> tuple[str, str]:
    """Parse `NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"'{text}' does not have the form NAME=VALUE")
    return name, value


def separator(text: str) -> str:
    r"""Parse a non-empty separator, in which `\t` is a tab."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text.replace("\\t", "\t")


def spark_master(text: str) -> str:
    """Check the URL of a Spark master, or `inline`, before Spark starts."""
    if _SPARK_MASTER.fullmatch(text):
        return text
    import difflib  # noqa: PLC0415  (only for the error)

    near = difflib.get_close_matches(text.lower(), ("inline", "local", "yarn"), 1)
    raise argparse.ArgumentTypeError(
        f"'{text}' is not a Spark master{f'; did you mean {near[0]}?' if near else '.'} Use "
        "inline, local, local[CORES], local-cluster[WORKERS,CORES,MB], spark://HOST:PORT, yarn or "
        "k8s://HOST:PORT"
    )


def reject_combination(**given: bool) -> None:
    """Raise `UsageError` if more than one option is given. Underscores stand for dashes.

    Names in capitals are positional arguments.
    """
    names = [
        name if name.isupper() else f"--{name.replace('_', '-')}"
        for name, is_given in given.items() if is_given
    ]
    if len(names) > 1:
        raise UsageError(f"{' and '.join(names)} cannot be combined.")
