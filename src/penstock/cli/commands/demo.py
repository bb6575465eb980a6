"""`penstock demo`: runs an example application."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from penstock.cli.errors import CommandError, UsageError
from penstock.cli.parsing import Subparsers, add_command
from penstock.cli.terminal import Terminal
from penstock.suggestions import did_you_mean

#: Beside the package in a checkout, and inside of it in a wheel (see setup.py).
_FOLDERS = (Path(__file__).parents[4] / "examples", Path(__file__).parents[2] / "_examples")


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers, "demo", demo, summary="run an example application", log=False,
        details="""
Without NAME, the command lists the examples. Each example creates its topics in a temporary file,
sends records, processes them on Spark, and shows the results; it ends by itself. '--master inline'
runs without Spark and Java. '--log kafka://HOST:PORT' runs it on Kafka.""",
        examples="""
  penstock demo
  penstock demo words
  penstock demo words --master inline
  penstock demo words --log kafka://localhost:9092
  penstock demo orders --rate 2000 --seconds 30
""",
    )
    parser.add_argument("name", metavar="NAME", nargs="?")
    parser.add_argument(
        "arguments", metavar="...", nargs=argparse.REMAINDER, help="options of the example"
    )


def demo(args: argparse.Namespace, terminal: Terminal) -> None:
    """List the examples, or run one."""
    folder = next((each for each in _FOLDERS if each.is_dir()), None)
    if folder is None:
        raise CommandError("This installation of penstock has no examples.")
    examples = {path.parent.name.replace("_", "-"): path for path in folder.glob("*/demo.py")}
    if args.name is None:
        terminal.write_table(
            ("EXAMPLE", "CONTENT"), [(name, _summary(examples[name])) for name in sorted(examples)]
        )
        terminal.note(f"Run one with 'penstock demo NAME'. Their files are in '{folder}'.")
        return
    if args.name not in examples:
        raise UsageError(
            f"Example '{args.name}' does not exist.{did_you_mean(args.name, examples)} "
            f"Examples: {', '.join(sorted(examples))}."
        )
    terminal.flush()
    code = subprocess.call([sys.executable, str(examples[args.name]), *args.arguments])
    if code:
        raise CommandError(f"Example '{args.name}' has failed with exit code {code}.")


def _summary(script: Path) -> str:
    """The first sentence of an example's README."""
    lines = (script.parent / "README.md").read_text(encoding="utf-8").splitlines()
    return lines[1]
