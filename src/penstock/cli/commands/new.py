"""`penstock new`: creates a project."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from penstock.cli.parsing import Subparsers, add_command
from penstock.cli.terminal import Terminal


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers, "new", new, summary="create a project", log=False,
        details="""
The project is a small application that works: a topology with its model, a generator of sample
data, tests, a configuration file, a README and a Dockerfile. Change it into yours. Existing files
are never overwritten.""",
        examples="""
  penstock new orders
  penstock new store-revenue --directory work/revenue
""",
    )
    parser.add_argument(
        "name", metavar="NAME", help="name of the project: small letters, digits and dashes"
    )
    parser.add_argument(
        "--directory", metavar="DIR", type=Path,
        help="where to create it; must not exist or be empty (default: NAME)",
    )


def new(args: argparse.Namespace, terminal: Terminal) -> None:
    """Create the project and print what to do next."""
    from penstock.cli.project import create_project, package_name  # noqa: PLC0415

    package = package_name(args.name)
    folder: Path = args.directory or Path(args.name)
    files = create_project(args.name, folder)
    for line in (
        f"Created project '{args.name}' in '{folder}': {len(files)} files.",
        f"  cd {shlex.quote(str(folder))}",
        "  python -m pytest",
        f"  penstock describe {package}.topology",
    ):
        terminal.write_line(line)
    terminal.note("README.md in the project has the commands to run it.")
