"""How arguments are written: times, settings, and the options that all commands share."""

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

Command: TypeAlias = "Callable[[argparse.Namespace, Terminal], None]"
#: What `add_subparsers` answers; argparse has no public name for it.
Commands: TypeAlias = "argparse._SubParsersAction[Parser]"

LOG_VARIABLE = "PENSTOCK_LOG"
LOG_CONFIG_VARIABLE = "PENSTOCK_LOG_CONFIG"
_DURATION = re.compile(r"(\d+)(ms|s|m|h|d)")
_MASTER = re.compile(r"inline|local|local\[.+\]|local-cluster\[.+\]|yarn|(spark|k8s)://.+")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class _Help(argparse.HelpFormatter):
    """Fills paragraphs to the width of the terminal and leaves examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return text
        return "\n\n".join(
            textwrap.fill(" ".join(paragraph.split()), width) for paragraph in text.split("\n\n")
        )


class Parser(argparse.ArgumentParser):
    """A parser that takes no abbreviations, so that a new option never breaks a script."""

    def __init__(self, *, examples: str = "", **settings: Any) -> None:
        settings.setdefault("allow_abbrev", False)
        settings.setdefault("formatter_class", _Help)
        if examples:
            settings["epilog"] = f"examples:\n{examples.strip(chr(10))}"
        super().__init__(**settings)

    def error(self, message: str) -> NoReturn:
        """A hint at the help instead of the whole usage."""
        self.exit(2, f"penstock: error: {message}\nSee '{self.prog} --help'.\n")


def add_common(parser: argparse.ArgumentParser, *, log: bool = True) -> None:
    """The options that may stand before or after the name of a command."""
    # No defaults: those of the command would undo what was given before its name.
    if log:
        parser.add_argument(
            "--log", metavar="PATH", default=argparse.SUPPRESS,
            help=f"the log to work on (default: the environment variable {LOG_VARIABLE})",
        )
        parser.add_argument(
            "--log-config", metavar="FILE", default=argparse.SUPPRESS,
            help="a properties file with librdkafka's settings for a kafka:// log, such as "
            f"security.protocol (default: the environment variable {LOG_CONFIG_VARIABLE})",
        )
    parser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS,
        help="show the traceback of an error",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option that asks for JSON instead of a table."""
    parser.add_argument("--json", action="store_true", help="one JSON object a line, for scripts")


def add_command(
    commands: Commands, name: str, run: Command | None, *, about: str, more: str = "",
    examples: str = "", log: bool = True,
) -> Parser:
    """One command with its help; `run` is None for one that has commands of its own."""
    parser = commands.add_parser(
        name, help=about, description=f"{about[0].upper()}{about[1:]}.\n\n{more.strip()}".rstrip(),
        examples=examples,
    )
    add_common(parser, log=log)
    if run is not None:
        parser.set_defaults(run=run, prog=parser.prog)
    return parser


def add_commands(parser: Parser, title: str = "commands") -> Commands:
    """Room for the commands under a parser; one of them has to be given."""
    return parser.add_subparsers(title=title, metavar="COMMAND", dest="command", required=True)


# The types of arguments. argparse shows what an ArgumentTypeError says.


def whole(text: str) -> int:
    """A number that is not negative."""
    if not re.fullmatch(r"\d+", text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of 0 or more")
    return int(text)


def positive(text: str) -> int:
    """A number of 1 or more."""
    number = whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def signed(text: str) -> int:
    """A number, with or without a sign."""
    if not re.fullmatch(r"[+-]?\d+", text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number")
    return int(text)


def instant(text: str) -> int:
    """A point in time as epoch milliseconds: `now`, milliseconds, ISO 8601, or `15m` (ago)."""
    now = wall_clock_ms()
    if text == "now":
        return now
    if re.fullmatch(r"\d+", text):
        return int(text)
    if _DURATION.fullmatch(text):
        return max(0, now - duration(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is no time; write 2026-01-31T12:00:00Z, epoch milliseconds, "
            "15m (that long ago) or now"
        ) from None
    if moment.tzinfo is None:
        # As people read the clock on the wall; scripts had better name the zone.
        moment = moment.astimezone()
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    milliseconds = since.days * 86_400_000 + since.seconds * 1_000 + since.microseconds // 1_000
    if milliseconds < 0:
        raise argparse.ArgumentTypeError(f"'{text}' is before 1970")
    return milliseconds


def duration(text: str) -> int:
    """A stretch of time in milliseconds: `60000`, or `1m`."""
    if re.fullmatch(r"\d+", text):
        return int(text)
    found = _DURATION.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"'{text}' is no duration; write milliseconds, or 15m")
    return int(found[1]) * _UNIT_MS[found[2]]


def setting(text: str) -> tuple[str, str]:
    """`name=value`."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"'{text}' is not of the form NAME=VALUE")
    return name, value


def separator(text: str) -> str:
    r"""A text of at least one character; `\t` may be written for a tab."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text.replace("\\t", "\t")


def master(text: str) -> str:
    """A Spark master, or `inline`; a slip would be known only when Spark has started."""
    if _MASTER.fullmatch(text):
        return text
    import difflib  # noqa: PLC0415  (only after a slip)

    near = difflib.get_close_matches(text.lower(), ("inline", "local", "yarn"), 1)
    raise argparse.ArgumentTypeError(
        f"no such master '{text}'{f'; did you mean {near[0]}?' if near else '.'} A master is "
        "inline, local, local[CORES], local-cluster[WORKERS,CORES,MB], spark://HOST:PORT, yarn or "
        "k8s://HOST:PORT"
    )


def refuse_together(**given: bool) -> None:
    """Refuse all but one of some options; they are named with underscores for dashes."""
    names = [f"--{name.replace('_', '-')}" for name, is_given in given.items() if is_given]
    if len(names) > 1:
        raise UsageError(f"{' and '.join(names)} do not go together.")
