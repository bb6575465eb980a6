"""`penstock run`: a topology runs on Spark until it is told to stop."""

from __future__ import annotations

import argparse
import logging
import os
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from penstock.cli.errors import CommandFailed
from penstock.cli.parsing import (
    Commands,
    add_command,
    master,
    positive,
    refuse_together,
    setting,
)
from penstock.cli.terminal import Terminal

if TYPE_CHECKING:
    from penstock.app import Streams
    from penstock.cli.status_line import StatusLine
    from penstock.cli.topology_loader import Found
    from penstock.config import StreamsConfig
    from penstock.engine.lifecycle import State
    from penstock.log.base import Log
    from penstock.topology.topology import Topology

#: How often the line is looked after while nothing happens.
TICK_S = 0.5


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands, "run", run, about="run a topology on Spark",
        more="""
The topology is found as 'penstock describe' finds it. Its topics must be there. The configuration
is the variable config (or CONFIG) of the file, a StreamsConfig or a mapping with Kafka's names;
--config, --set and the other options win over it, in this order.

Several instances may be started: one runs, the others stand by and take over when it ends or dies.
Ctrl-C and SIGTERM let the running batch finish; a second ctrl-C does not.""",
        examples="""
  penstock run app.py --application-id orders --log orders.db
  penstock run shop.orders:topology --config streams.properties
  penstock run app.py --once --quiet
  penstock run app.py --set commit.interval.ms=1000 --set num.stream.threads=4
  penstock run app.py --master 'local[2]' --state-dir state
""",
    )
    parser.add_argument("target", metavar="FILE|MODULE[:NAME]")
    parser.add_argument(
        "--application-id", metavar="NAME",
        help="names internal topics and the consumer group; to be kept for ever",
    )
    parser.add_argument(
        "--master", metavar="URL", type=master,
        help="the Spark master (default: this machine); 'inline': in this process, without Spark",
    )
    parser.add_argument(
        "--once", action="store_true",
        help="process what is there and end, instead of waiting for more",
    )
    parser.add_argument(
        "--config", metavar="FILE", action="append", default=[],
        help="a file of properties with Kafka's names; may be given several times",
    )
    parser.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], type=setting,
        help="one setting; may be given several times",
    )
    parser.add_argument("--state-dir", metavar="DIR", help="where stores keep their rows")
    parser.add_argument(
        "--create-topics", metavar="N", type=positive,
        help="make the topics that are missing, with N partitions",
    )
    parser.add_argument("--quiet", action="store_true", help="show warnings and errors only")
    parser.add_argument(
        "--verbose", action="store_true", help="show every batch, and what is logged"
    )


def run(args: argparse.Namespace, terminal: Terminal) -> None:
    """Run until the end; raises what ended it."""
    refuse_together(quiet=args.quiet, verbose=args.verbose)
    # Not before: other commands start without the DSL, Arrow and Spark.
    from penstock.cli.run_config import config_of  # noqa: PLC0415
    from penstock.cli.status_line import StatusLine, listening  # noqa: PLC0415
    from penstock.cli.topology_loader import find  # noqa: PLC0415

    handlers = list(logging.getLogger().handlers)
    found = find(args.target)
    # An application that sets up logging by itself keeps what it has.
    own_logging = logging.getLogger().handlers != handlers
    config = config_of(found, args)
    topology = found.topology(config)
    _check_topics(topology, config, args, terminal)
    if args.master != "inline":
        _ship(found)
    streams: Streams | None = None
    live = StatusLine(
        terminal, config.application_id, quiet=args.quiet, every_batch=args.verbose,
        lag=lambda: None if streams is None else streams.lag(),
    )
    level = logging.INFO if args.verbose else logging.WARNING
    try:
        with nullcontext() if own_logging else listening(live, level):
            streams = _application(topology, config, args, live)
            _run(streams, live, once=args.once)
    finally:
        live.close()
    if not args.quiet:
        terminal.note(_summary(live, config))


def _application(
    topology: Topology, config: StreamsConfig, args: argparse.Namespace, live: StatusLine
) -> Streams:
    from penstock.app import Streams  # noqa: PLC0415

    streams = Streams(
        topology, config, master=args.master, on_batch=live.batch, out=live.out,
        on_standby=lambda holder: live.state(
            "STANDBY", f"{holder} runs the application; this instance takes over when that ends"
        ),
    )
    spark = args.master != "inline"
    streams.set_state_listener(lambda new, old: _show_state(live, new, old, spark=spark))
    streams.set_global_state_restore_listener(_restores(live))
    return streams


def _show_state(live: StatusLine, state: State, before: State, *, spark: bool) -> None:
    is_start = (before.value, state.value) == ("CREATED", "REBALANCING")
    live.state(state.value, "starting Spark, then the first batch" if is_start and spark else "")


def _run(streams: Streams, live: StatusLine, *, once: bool) -> None:
    """Start, and see to the line until the end."""
    streams.start()
    try:
        if once:
            while not (streams.is_caught_up(TICK_S) or streams.state.has_ended):
                live.tick()
            streams.close()
            streams.wait()
            return
        while not streams.wait(TICK_S):
            live.tick()
    except BrokenPipeError:
        # The receiver of what print steps print went away.
        streams.close()
        raise
    except Exception as error:
        streams.close()
        raise _told(streams, error) from error
    except BaseException:
        # Ctrl-C or SIGTERM; another ctrl-C ends the waiting, and the process.
        live.state("STOPPING", f"{_finished_first(streams)}ctrl-C again ends at once")
        streams.close()
        raise


def _finished_first(streams: Streams) -> str:
    """What an end has to wait for. Until an instance is RUNNING it has no batch behind it."""
    if streams.waits_for is not None:
        return ""
    is_running = streams.state.value == "RUNNING"
    return f"the {'running batch' if is_running else 'start'} is finished first; "


def _told(streams: Streams, error: Exception) -> Exception:
    """The failure as people read it: what, where, and the user's own lines."""
    where = f"Application '{streams.config.application_id}' failed"
    user: str = getattr(error, "user_traceback", "")
    processor: Any = getattr(error, "processor", None)
    if processor is None:
        return CommandFailed(f"{where}. {error}" + (f"\n\n{user.rstrip()}" if user else ""))
    facts = {
        "processor": processor, "task": getattr(error, "task_id", None),
        "topic": getattr(error, "topic", None), "partition": getattr(error, "partition", -1),
        "offset": getattr(error, "offset", -1), "key": getattr(error, "key", None),
    }
    lines = [
        f"  {name + ':':10} {value}" for name, value in facts.items()
        if value is not None and value != -1
    ]
    cause = error.__cause__
    what = f"{type(cause).__name__}: {cause}" if cause is not None else str(error)
    return CommandFailed("\n".join((
        f"{where}: {what}", *lines, *(("", user.rstrip()) if user else ()), "",
        "Nothing of the batch was written. "
        f"To skip such records set {_handler_of(error)}=continue.",
    )))


def _handler_of(error: Exception) -> str:
    """The handler that was asked about it: the message names it, unless it is for processing."""
    told = str(error)
    for kind in ("deserialization", "production"):
        if f"{kind}_exception_handler" in told:
            return f"{kind}.exception.handler"
    return "processing.exception.handler"


def _summary(live: StatusLine, config: StreamsConfig) -> str:
    return (
        f"{config.application_id}: ended after {live.batches:,} "
        f"batch{'' if live.batches == 1 else 'es'}, "
        f"{live.records:,} record{'' if live.records == 1 else 's'}."
    )


def _restores(live: StatusLine) -> Any:
    """Shows restores in the line."""
    from penstock.engine.observe.restore import StateRestoreListener  # noqa: PLC0415

    class Restores(StateRestoreListener):
        """Adds up what every store has read."""

        def __init__(self) -> None:
            self.totals: dict[Any, tuple[int, int]] = {}

        def on_restore_start(
            self, partition: Any, store: str, starting_offset: int, ending_offset: int
        ) -> None:
            self.totals[partition, store] = (0, ending_offset - starting_offset)
            live.restored((partition, store), *self.totals[partition, store])

        def on_batch_restored(
            self, partition: Any, store: str, batch_end_offset: int, restored: int
        ) -> None:
            done, total = self.totals[partition, store]
            self.totals[partition, store] = (done + restored, total)
            live.restored((partition, store), done + restored, total)

        def on_restore_end(self, partition: Any, store: str, total: int) -> None:
            live.restored((partition, store), 1, 1)

        on_restore_suspended = on_restore_end

    return Restores()


# ---- what must be there before ---------------------------------------------------------------


def _check_topics(
    topology: Topology, config: StreamsConfig, args: argparse.Namespace, terminal: Terminal
) -> None:
    """Make sure that the log is there, and every topic that the topology names."""
    from penstock.cli.log_option import telling_of_waits  # noqa: PLC0415
    from penstock.log import open_log, scheme_of  # noqa: PLC0415

    assert config.log is not None
    create = args.create_topics is not None
    if not create and not scheme_of(config.log).may_exist(config.log):
        raise CommandFailed(
            f"No log at '{config.log}'. Make one with its topics:\n"
            + _creation(_named(topology), config.log)
        )
    with telling_of_waits(config.log, quiet=args.quiet):
        opened = open_log(
            config.log, create=create, connection=config.connection_settings()
        )
    with opened as log:
        missing = _missing(topology, log)
        if not missing:
            return
        if not create:
            raise CommandFailed(
                f"The application needs {'topics that are' if missing[1:] else 'a topic that is'} "
                f"not there: {', '.join(missing)}. To make {'them' if missing[1:] else 'it'}:\n"
                + _creation(missing, config.log)
            )
        for topic in missing:
            log.create_topic(topic, args.create_topics)
            if not args.quiet:
                terminal.note(f"Created topic '{topic}'.")


def _named(topology: Topology) -> list[str]:
    """Every topic that is read or written by name, but for those that penstock makes itself."""
    from penstock.topology.nodes import SinkNode, SourceNode  # noqa: PLC0415

    names: dict[str, None] = {}
    for node in topology.nodes:
        if isinstance(node, SourceNode):
            names |= dict.fromkeys(node.topics)
        elif isinstance(node, SinkNode) and isinstance(node.topic, str):
            names[node.topic] = None
    names |= {store.topic: None for store in topology.global_stores.values()}
    return [name for name in names if name not in topology.internal_topics]


def _missing(topology: Topology, log: Log) -> list[str]:
    there = {topic.name for topic in log.topics()}
    return [name for name in _named(topology) if name not in there]


def _creation(topics: list[str], address: str) -> str:
    return "\n".join(f"  penstock topics create {topic} --log {address}" for topic in topics)


def _ship(found: Found) -> None:
    """Let the workers have the file, and its neighbours, as this process has them."""
    from penstock.engine.packaging.pickling import pickle_by_value  # noqa: PLC0415

    if found.is_file:
        pickle_by_value(found.module)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*found.folders, *([before] if before else [])])
