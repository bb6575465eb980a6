"""`penstock dashboard`: shows an application in the browser, from a query node."""

from __future__ import annotations

import argparse
import functools

from penstock.cli.commands.serve import add_node_options, serve_node
from penstock.cli.parsing import Subparsers, add_command
from penstock.cli.serve_options import add_dashboard_options
from penstock.cli.terminal import Terminal


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers, "dashboard", dashboard, summary="show an application in the browser",
        details="""
The page shows topics and their lag, stores, dead letters, instances and settings. It is served by a
query node, as by 'penstock serve', so it also works while the application is stopped.

'penstock run --dashboard' shows a running instance, with its metrics.""",
        examples="""
  penstock dashboard app.py --application-id orders --log orders.db
  penstock dashboard app.py --config streams.properties --allow-actions
""",
    )
    add_node_options(parser)
    add_dashboard_options(parser)


def dashboard(args: argparse.Namespace, terminal: Terminal) -> None:
    """Serve until the process is stopped."""
    # The other commands start faster without it.
    from penstock.web.dashboard import create_dashboard  # noqa: PLC0415

    create = functools.partial(create_dashboard, allow_actions=args.allow_actions)
    serve_node(args, create, lambda application_id, url: terminal.note(
        f"The dashboard of '{application_id}' is on {url}/dashboard."
    ))
