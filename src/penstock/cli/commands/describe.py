"""`penstock describe`: the description of a topology."""

from __future__ import annotations

import argparse

from penstock.cli.parsing import Commands, add_command
from penstock.cli.terminal import Terminal


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands, "describe", describe, about="print the description of a topology", log=False,
        more="""
The topology is a Topology, a StreamsBuilder, or a function without parameters that makes one, in a
file or a module. Without a name it is topology, build_topology, builder, build or app, or the only
one there.
The module is imported: what it does when imported is done.""",
        examples="""
  penstock describe app.py
  penstock describe app.py:word_count
  penstock describe shop.orders:topology
  penstock describe app.py --json
""",
    )
    parser.add_argument("target", metavar="FILE|MODULE[:NAME]")
    parser.add_argument("--json", action="store_true", help="as one JSON object, for scripts")


def describe(args: argparse.Namespace, terminal: Terminal) -> None:
    """The description, as Kafka writes it or as JSON."""
    # Not before: other commands need nothing of the DSL, and start without it.
    from penstock.cli.topology_loader import as_json, load_topology  # noqa: PLC0415

    description = load_topology(args.target).describe()
    if args.json:
        terminal.json(as_json(description))
    else:
        terminal.line(str(description).rstrip("\n"))
