"""`penstock broker`: a real Apache Kafka on this machine, for trying things out and for tests."""

from __future__ import annotations

import argparse
import time

import platformdirs

from penstock.broker import jars
from penstock.broker.cluster import ClusterStatus, LocalCluster
from penstock.broker.errors import BrokerError
from penstock.broker.properties import BrokerOptions
from penstock.cli.errors import CommandFailed
from penstock.cli.parsing import (
    Commands,
    Parser,
    add_command,
    add_commands,
    add_json,
    positive,
    setting,
    whole,
)
from penstock.cli.terminal import Terminal

_LOOK_S = 0.5


def add(commands: Commands) -> None:
    """Add the command and those under it."""
    parser = add_command(
        commands, "broker", None, about="run an Apache Kafka on this machine", log=False,
        more=f"""
Kafka {jars.VERSION} without Docker and without Maven. Its jars are fetched once, about 45 MB, into
the user's cache folder (PENSTOCK_CACHE names another one). It needs Java 17, and listens on
loopback only.""",
        examples="""
  penstock broker start
  penstock topics create orders --log kafka://127.0.0.1:9092
  penstock broker stop
""",
    )
    inner = add_commands(parser)
    _add_start(inner)
    stop = add_command(
        inner, "stop", stop_broker, about="stop the broker", log=False,
        more="The processes are known by their ids; what they have written stays.",
        examples="""
  penstock broker stop
  penstock broker stop --data big --node 2
""",
    )
    _add_data(stop)
    stop.add_argument("--node", type=positive, metavar="N", help="only this one of several")
    status = add_command(
        inner, "status", show_status, about="tell whether the broker runs, and where", log=False,
        examples="""
  penstock broker status
  penstock broker status --json | jq -r .bootstrap_servers
""",
    )
    _add_data(status)
    add_json(status)
    fetch = add_command(
        inner, "fetch", fetch_jars, about="fetch Kafka's jars, if they are not here", log=False,
        examples="""
  penstock broker fetch
  penstock broker fetch --streams
""",
    )
    fetch.add_argument(
        "--streams", action="store_true",
        help=f"Kafka Streams for Java too, about {jars.STREAMS.megabytes} MB, to compare with",
    )


def _add_start(commands: Commands) -> None:
    parser = add_command(
        commands, "start", start_broker, about="start a broker, or the missing ones", log=False,
        more="""
It runs until 'penstock broker stop', and keeps its data for the next start. With --foreground it
runs until ctrl-C.""",
        examples="""
  penstock broker start
  penstock broker start --port 0 --data scratch --json
  penstock broker start --brokers 3 --port 19092
  penstock broker start --foreground --config log.retention.hours=1
""",
    )
    _add_data(parser)
    parser.add_argument(
        "--port", type=whole, metavar="N",
        help="where clients find it; further brokers take the next ones; 0: any that is free "
        "(default: as the last time, at first 9092)",
    )
    parser.add_argument(
        "--brokers", type=positive, metavar="N",
        help="so many, with 3 copies of everything (default: as many as there are, or 1)",
    )
    parser.add_argument(
        "--heap-mb", type=positive, default=512, metavar="N",
        help="memory of each broker (default: 512)",
    )
    parser.add_argument(
        "--config", action="append", default=[], type=setting, metavar="NAME=VALUE",
        help="a setting of Kafka's own (may be repeated)",
    )
    parser.add_argument("--foreground", action="store_true", help="run until ctrl-C")
    add_json(parser)


def _add_data(parser: Parser) -> None:
    parser.add_argument(
        "--data", metavar="DIR", help="where its data is (default: in the user's data folder)"
    )


def _cluster(args: argparse.Namespace) -> LocalCluster:
    if args.data:
        return LocalCluster(args.data)
    return LocalCluster(platformdirs.user_data_path("penstock", appauthor=False) / "kafka")


def start_broker(args: argparse.Namespace, terminal: Terminal) -> None:
    """Start what does not run, and tell where it is."""
    cluster = _cluster(args)
    before = cluster.status()
    brokers = args.brokers or len(before.nodes) or 1
    options = BrokerOptions(
        port=args.port, brokers=brokers, heap_mb=args.heap_mb, properties=dict(args.config)
    )
    _fetch_if_missing(terminal)
    status = cluster.start(options)
    try:
        if before.running:
            terminal.note("It was running already.")
        _show(args, terminal, status)
        if args.foreground:
            terminal.flush()
            _watch(cluster)
    finally:
        if args.foreground:
            cluster.stop()


def _watch(cluster: LocalCluster) -> None:
    while cluster.status().running:
        time.sleep(_LOOK_S)
    raise BrokerError(f"A broker has ended by itself. See '{cluster.log_file(1)}'.")


def stop_broker(args: argparse.Namespace, terminal: Terminal) -> None:
    """End the processes."""
    cluster = _cluster(args)
    before = cluster.status()
    after = cluster.stop(node=args.node)
    ended = sum(node.running for node in before.nodes) - sum(node.running for node in after.nodes)
    what = {0: "No broker was running.", 1: "Stopped 1 broker."}.get(
        ended, f"Stopped {ended} brokers."
    )
    terminal.note(what)


def show_status(args: argparse.Namespace, terminal: Terminal) -> None:
    """Where the broker is; exit code 1 if it does not run."""
    status = _cluster(args).status()
    _show(args, terminal, status)
    if not status.running:
        stopped = [node.id for node in status.nodes if not node.running]
        what = "the broker"
        if len(stopped) < len(status.nodes):
            what = f"node {', '.join(map(str, stopped))}"
        raise CommandFailed(f"Not running: {what} of '{status.data}'.")


def _show(args: argparse.Namespace, terminal: Terminal, status: ClusterStatus) -> None:
    if args.json:
        terminal.json(status.as_json())
        return
    if not status.nodes:
        return
    terminal.properties({
        "Kafka": status.kafka, "Log": status.address, "Data": status.data,
    })
    terminal.table(
        ("NODE", "PORT", "PID", "STATE"),
        [
            (node.id, node.port, node.pid, "running" if node.running else "stopped")
            for node in status.nodes
        ],
    )


def fetch_jars(args: argparse.Namespace, terminal: Terminal) -> None:
    """Fetch the jars unless they are here."""
    _fetch_if_missing(terminal)
    if args.streams:
        _fetch_if_missing(terminal, jars.STREAMS)
    terminal.line(str(jars.cache_folder()))


def _fetch_if_missing(terminal: Terminal, jar_set: jars.JarSet = jars.BROKER) -> None:
    if jar_set.is_fetched:
        return
    terminal.note(f"Fetching {jar_set.what} {jars.VERSION}, about {jar_set.megabytes} MB, once.")
    with terminal.progress("fetching", jar_set.expected_jars) as bar:
        jars.fetch(jar_set, lambda _: bar.advance(1))
