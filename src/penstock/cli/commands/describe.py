"""`penstock describe`: prints the description of a topology."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from penstock.cli.errors import UsageError
from penstock.cli.parsing import Subparsers, add_command, add_config_options
from penstock.cli.terminal import Terminal


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers, "describe", describe, log=False,
        summary="print the description of a topology, or draw it",
        details="""
The target is a file or a module with a Topology, a StreamsBuilder, or a function without parameters
that returns one. Without NAME, the command looks for topology, build_topology, builder, build and
app, and then for the only topology in the module. The configuration, of which some settings change
the topology, is that of 'penstock run'.

A picture shows sub-topologies as boxes, with their nodes and state stores, and the topics between
them. It goes to standard output, or to the file of --output. --png needs 'penstock[pictures]'.

The command imports the module, which runs its top-level code.""",
        examples="""
  penstock describe app.py
  penstock describe app.py:word_count
  penstock describe shop.orders:topology
  penstock describe app.py --json
  penstock describe app.py --svg --output topology.svg
  penstock describe app.py --mermaid
  penstock describe app.py --set topology.optimization=all
""",
    )
    parser.add_argument("target", metavar="FILE|MODULE[:NAME]")
    add_config_options(parser)
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print one JSON object, for scripts")
    for form, text in (
        ("mermaid", "a Mermaid flowchart"), ("dot", "text for Graphviz"),
        ("svg", "an SVG picture"), ("png", "a PNG picture"),
    ):
        forms.add_argument(
            f"--{form}", dest="picture", action="store_const", const=form, help=f"print {text}"
        )
    parser.add_argument(
        "--output", "-o", metavar="FILE", type=Path, help="write to a file, not to standard output"
    )


def describe(args: argparse.Namespace, terminal: Terminal) -> None:
    """Print the description in Kafka's format, as JSON, or as a picture."""
    # The other commands start faster without the DSL.
    from penstock.cli.run_config import build_description_config  # noqa: PLC0415
    from penstock.cli.topology_loader import load_target  # noqa: PLC0415
    from penstock.topology.build_settings import check_build_settings  # noqa: PLC0415
    from penstock.topology.describe import description_as_json  # noqa: PLC0415

    target = load_target(args.target)
    config = build_description_config(target, args)
    topology = target.build(config, requires_serdes=False)
    check_build_settings(topology, config)
    description = topology.describe()
    if args.json:
        content = msgspec.json.encode(description_as_json(description)) + b"\n"
    elif args.picture == "png":
        content = description.to_png()
    else:
        text = getattr(description, f"to_{args.picture}")() if args.picture else str(description)
        content = text.rstrip("\n").encode("utf-8", "surrogateescape") + b"\n"
    if args.output is not None:
        args.output.write_bytes(content)
    elif terminal.out_is_terminal and args.picture == "png":
        raise UsageError("PNG is not text. Write it to a file with --output FILE.")
    elif terminal.out_is_terminal:
        terminal.write_line(content.decode("utf-8", "surrogateescape").rstrip("\n"))
    else:
        terminal.out.write(content)
