"""`penstock describe`: prints the description of a topology."""

from __future__ import annotations

import argparse

from penstock.cli.parsing import Subparsers, add_command, add_config_options
from penstock.cli.terminal import Terminal


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers, "describe", describe, summary="print the description of a topology", log=False,
        details="""
The target is a file or a module with a Topology, a StreamsBuilder, or a function without parameters
that returns one. Without NAME, the command looks for topology, build_topology, builder, build and
app, and then for the only topology in the module. The configuration, of which some settings change
the topology, is that of 'penstock run'.

The command imports the module, which runs its top-level code.""",
        examples="""
  penstock describe app.py
  penstock describe app.py:word_count
  penstock describe shop.orders:topology
  penstock describe app.py --json
  penstock describe app.py --set topology.optimization=all
""",
    )
    parser.add_argument("target", metavar="FILE|MODULE[:NAME]")
    add_config_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object, for scripts")


def describe(args: argparse.Namespace, terminal: Terminal) -> None:
    """Print the description in Kafka's format or as JSON."""
    # The other commands start faster without the DSL.
    from penstock.cli.run_config import build_description_config  # noqa: PLC0415
    from penstock.cli.topology_loader import description_as_json, load_target  # noqa: PLC0415
    from penstock.topology.build_settings import check_build_settings  # noqa: PLC0415

    target = load_target(args.target)
    config = build_description_config(target, args)
    topology = target.build(config, requires_serdes=False)
    check_build_settings(topology, config)
    description = topology.describe()
    if args.json:
        terminal.write_json(description_as_json(description))
    else:
        terminal.write_line(str(description).rstrip("\n"))
