"""`penstock serve`: a query node."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.cli.parsing import Subparsers, add_command, add_config_options
from penstock.cli.serve_options import Address, add_http_options, http_settings
from penstock.cli.terminal import Terminal

if TYPE_CHECKING:
    from penstock.queries.http_settings import HttpSettings
    from penstock.queries.node import QueryNode

DEFAULT_PORT = 8080


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers, "serve", serve, summary="serve the state of an application over HTTP",
        details="""
A query node follows the changelogs of an application into replicas of its own. It runs no task,
holds no lease and writes nothing to the log. It returns the committed state of every key, whether
or not the application is running. Start several of them to serve more requests. The target is the
file of the application, because it has the types of keys and values.

'penstock run --serve' serves the state of a running instance instead.""",
        examples="""
  penstock serve app.py --application-id orders --log orders.db
  penstock serve app.py --config streams.properties --port 8081
  penstock serve app.py --config streams.properties --host 0.0.0.0 --token-file token
""",
    )
    add_node_options(parser)


def add_node_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a query node that is served over HTTP."""
    parser.add_argument("target", metavar="FILE|MODULE[:NAME]")
    parser.add_argument("--application-id", metavar="NAME", help="the id of the application")
    parser.add_argument(
        "--host", metavar="ADDRESS", default="127.0.0.1",
        help="the address to listen on (default: 127.0.0.1)",
    )
    parser.add_argument(
        "--port", metavar="PORT", type=int, default=DEFAULT_PORT,
        help=f"the port to listen on; 0 takes a free one (default: {DEFAULT_PORT})",
    )
    add_http_options(parser)
    add_config_options(parser)
    parser.add_argument(
        "--state-dir", metavar="DIR",
        help="directory of the replicas (default: query-node in the application's state directory)",
    )


def serve(args: argparse.Namespace, terminal: Terminal) -> None:
    """Serve until the process is stopped."""
    # The other commands start faster without it.
    from penstock.queries.http import create_app  # noqa: PLC0415

    serve_node(args, create_app, lambda application_id, url: terminal.note(
        f"Serving the state of '{application_id}' on {url}. {url}/docs describes the interface."
    ))


def serve_node(
    args: argparse.Namespace, create: Callable[[QueryNode, HttpSettings], Any],
    on_start: Callable[[str, str], object],
) -> None:
    """Serve a query node until the process is stopped. `on_start` gets the application id and the
    address."""
    from penstock.cli.run_config import build_config  # noqa: PLC0415
    from penstock.cli.topology_loader import load_target  # noqa: PLC0415
    from penstock.queries.http import Server  # noqa: PLC0415
    from penstock.queries.node import QueryNode, node_config  # noqa: PLC0415

    settings = http_settings(args, Address(args.host, args.port))
    target = load_target(args.target)
    config = node_config(build_config(target, args), args.state_dir)
    topology = target.build(config)
    with (
        QueryNode(topology, config) as node,
        Server(create(node, settings), settings) as server,
    ):
        on_start(config.application_id, server.url)
        # Ctrl-C and SIGTERM raise.
        threading.Event().wait()
