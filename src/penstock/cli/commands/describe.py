"""`penstock describe`: prints the description of a topology."""

from __future__ import annotations

import argparse

from penstock.cli.parsing import Subparsers, add_command
from penstock.cli.terminal import Terminal


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers, "describe", describe, summary="print the description of a topology", log=False,
        details="""
The target is a file or a module with a Topology, a StreamsBuilder, or a function without parameters
that returns one. Without NAME, the command looks for topology, build_topology, builder, build and
app, and then for the only topology in the module.

The command imports the module, which runs its top-level code.""",
        examples="""
  penstock describe app.py
  penstock describe app.py:word_count
  penstock describe shop.orders:topology
  penstock describe app.py --json
""",
    )
    parser.add_argument("target", metavar="FILE|MODULE[:NAME]")
    parser.add_argument("--json", action="store_true", help="print one JSON object, for scripts")


def describe(args: argparse.Namespace, terminal: Terminal) -> None:
    """Print the description in Kafka's format or as JSON."""
    # The other commands start faster without the DSL.
    from penstock.cli.topology_loader import description_as_json, load_target  # noqa: PLC0415

    description = load_target(args.target).build().describe()
    if args.json:
        terminal.write_json(description_as_json(description))
    else:
        terminal.write_line(str(description).rstrip("\n"))
