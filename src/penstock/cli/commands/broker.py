"""`penstock broker`: a local Apache Kafka for development and tests."""

from __future__ import annotations

import argparse
import time

import platformdirs

from penstock.broker import jars
from penstock.broker.cluster import ClusterStatus, LocalCluster
from penstock.broker.errors import BrokerError
from penstock.broker.properties import BrokerOptions
from penstock.cli.errors import CommandError
from penstock.cli.parsing import (
    Parser,
    Subparsers,
    add_command,
    add_json_option,
    add_subcommands,
    name_and_value,
    non_negative_int,
    positive_int,
)
from penstock.cli.terminal import Terminal

_POLL_S = 0.5


def add(subparsers: Subparsers) -> None:
    """Add the command and its subcommands."""
    parser = add_command(
        subparsers, "broker", None, summary="run Apache Kafka on this machine", log=False,
        details=f"""
Runs Kafka {jars.VERSION} without Docker or Maven. The first start downloads about
{jars.BROKER.megabytes} MB of jars into the user's cache directory, or into PENSTOCK_CACHE. Kafka
needs Java 17 and listens on the loopback interface only.""",
        examples="""
  penstock broker start
  penstock topics create orders --log kafka://127.0.0.1:9092
  penstock broker stop
""",
    )
    commands = add_subcommands(parser)
    _add_start(commands)
    stop = add_command(
        commands, "stop", stop_broker, summary="stop the broker", log=False,
        details="The data stays for the next start.",
        examples="""
  penstock broker stop
  penstock broker stop --data big --node 2
""",
    )
    _add_data_option(stop)
    stop.add_argument(
        "--node", type=positive_int, metavar="N", help="stop only this broker of a cluster"
    )
    status = add_command(
        commands, "status", show_status, summary="show whether the broker is running", log=False,
        details="The exit code is 1 if a broker is not running.",
        examples="""
  penstock broker status
  penstock broker status --json | jq -r .bootstrap_servers
""",
    )
    _add_data_option(status)
    add_json_option(status)
    fetch = add_command(
        commands, "fetch", fetch_jars, summary="download Kafka's jars unless they are cached",
        details="Prints the directory of the jars.", log=False,
        examples="""
  penstock broker fetch
  penstock broker fetch --streams
""",
    )
    fetch.add_argument(
        "--streams", action="store_true",
        help=f"also download Kafka Streams for Java, about {jars.STREAMS.megabytes} MB, for "
        "comparisons",
    )


def _add_start(commands: Subparsers) -> None:
    parser = add_command(
        commands, "start", start_broker, summary="start a broker or a cluster", log=False,
        details="""
Starts the brokers that are not running and returns when they accept clients. They run until
'penstock broker stop'. The data stays for the next start. With --foreground the command runs until
Ctrl-C and then stops the brokers.""",
        examples="""
  penstock broker start
  penstock broker start --port 0 --data scratch --json
  penstock broker start --brokers 3 --port 19092
  penstock broker start --foreground --config log.retention.hours=1
""",
    )
    _add_data_option(parser)
    parser.add_argument(
        "--port", type=non_negative_int, metavar="N",
        help="port of the first broker; further brokers use the following ports; 0 selects free "
        "ports (default: the port of the last start, or 9092)",
    )
    parser.add_argument(
        "--brokers", type=positive_int, metavar="N",
        help="number of brokers; with 3 or more every partition has 3 replicas (default: the "
        "number of the last start, or 1)",
    )
    parser.add_argument(
        "--heap-mb", type=positive_int, default=512, metavar="N",
        help="heap size of each broker in MB (default: 512)",
    )
    parser.add_argument(
        "--config", action="append", default=[], type=name_and_value, metavar="NAME=VALUE",
        help="a broker setting of Kafka (may be repeated)",
    )
    parser.add_argument("--foreground", action="store_true", help="run until Ctrl-C")
    add_json_option(parser)


def _add_data_option(parser: Parser) -> None:
    parser.add_argument(
        "--data", metavar="DIR",
        help="data directory of the cluster (default: in the user's data directory)",
    )


def _cluster(args: argparse.Namespace) -> LocalCluster:
    if args.data:
        return LocalCluster(args.data)
    return LocalCluster(platformdirs.user_data_path("penstock", appauthor=False) / "kafka")


def start_broker(args: argparse.Namespace, terminal: Terminal) -> None:
    """Start the brokers that are not running and print their addresses."""
    cluster = _cluster(args)
    before = cluster.status()
    brokers = args.brokers or len(before.nodes) or 1
    options = BrokerOptions(
        port=args.port, brokers=brokers, heap_mb=args.heap_mb, properties=dict(args.config)
    )
    _fetch_missing(terminal)
    status = cluster.start(options)
    try:
        if before.running:
            terminal.note("The broker is already running.")
        _write_status(args, terminal, status)
        if args.foreground:
            terminal.flush()
            _wait_for_exit(cluster)
    finally:
        if args.foreground:
            cluster.stop()


def _wait_for_exit(cluster: LocalCluster) -> None:
    while cluster.status().running:
        time.sleep(_POLL_S)
    raise BrokerError(f"A broker exited. See '{cluster.log_file(1)}'.")


def stop_broker(args: argparse.Namespace, terminal: Terminal) -> None:
    """Stop the brokers."""
    cluster = _cluster(args)
    before = cluster.status()
    after = cluster.stop(node=args.node)
    stopped = sum(node.running for node in before.nodes) - sum(node.running for node in after.nodes)
    messages = {0: "No broker was running.", 1: "Stopped 1 broker."}
    terminal.note(messages.get(stopped, f"Stopped {stopped} brokers."))


def show_status(args: argparse.Namespace, terminal: Terminal) -> None:
    """Print the status; raises if a broker is not running."""
    status = _cluster(args).status()
    _write_status(args, terminal, status)
    if status.running:
        return
    stopped = [node.id for node in status.nodes if not node.running]
    if len(stopped) == len(status.nodes):
        raise CommandError(f"The broker of '{status.data}' is not running.")
    numbers = ", ".join(map(str, stopped))
    nodes, verb = ("Nodes", "are") if stopped[1:] else ("Node", "is")
    raise CommandError(f"{nodes} {numbers} of '{status.data}' {verb} not running.")


def _write_status(args: argparse.Namespace, terminal: Terminal, status: ClusterStatus) -> None:
    if args.json:
        terminal.write_json(status.as_json())
        return
    if not status.nodes:
        return
    terminal.write_properties({
        "Kafka": status.kafka, "Log": status.address, "Data": status.data,
    })
    terminal.write_table(
        ("NODE", "PORT", "PID", "STATE"),
        [
            (node.id, node.port, node.pid, "running" if node.running else "stopped")
            for node in status.nodes
        ],
    )


def fetch_jars(args: argparse.Namespace, terminal: Terminal) -> None:
    """Download the jars unless they are cached, and print their directory."""
    _fetch_missing(terminal)
    if args.streams:
        _fetch_missing(terminal, jars.STREAMS)
    terminal.write_line(str(jars.cache_directory()))


def _fetch_missing(terminal: Terminal, jar_set: jars.JarSet = jars.BROKER) -> None:
    if jar_set.is_fetched:
        return
    terminal.note(f"Downloading {jar_set.title} {jars.VERSION} (about {jar_set.megabytes} MB).")
    with terminal.progress("downloading", jar_set.expected_jars) as advance:
        jars.fetch(jar_set, lambda _: advance(1))
