"""`penstock run`: runs a topology until it is stopped."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from penstock.cli.errors import CommandError, UsageError
from penstock.cli.parsing import (
    Subparsers,
    add_command,
    add_config_options,
    positive_int,
    reject_combination,
    spark_master,
)
from penstock.cli.run_logging import (
    LogOptions,
    add_log_options,
    print_to_status_line,
    run_logging,
)
from penstock.cli.serve_options import (
    add_dashboard_options,
    add_http_options,
    announced_address,
    http_address,
    http_settings,
)
from penstock.cli.terminal import Terminal

if TYPE_CHECKING:
    from penstock.app import Streams
    from penstock.cli.status_line import StatusLine
    from penstock.cli.topology_loader import TopologyTarget
    from penstock.config import StreamsConfig
    from penstock.engine.lifecycle import State
    from penstock.queries.http_settings import HttpSettings
    from penstock.topology.topology import Topology

#: Interval of the status line's `tick`.
TICK_S = 0.5


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers, "run", run, summary="run a topology on Spark",
        details="""
The target is the same as for 'penstock describe'. The topics of the topology must exist. The
configuration is the variable config (or CONFIG) of the module: a StreamsConfig, or a mapping with
Kafka's setting names. --config, environment variables (PENSTOCK_SET_COMMIT_INTERVAL_MS=1000), --set
and the other options override it, in this order.

Several instances can be started. One runs the application. The others are standbys, one of which
takes over when the running instance stops or fails. Ctrl-C and SIGTERM commit what is in progress
first; a second Ctrl-C does not wait for it.""",
        examples="""
  penstock run app.py --application-id orders --log orders.db
  penstock run shop.orders:topology --config streams.properties
  penstock run app.py --once --quiet
  penstock run app.py --set commit.interval.ms=1000 --set num.stream.threads=4
  penstock run app.py --master 'local[2]' --state-dir state
  penstock run app.py --serve 127.0.0.1:8080
  penstock run app.py --dashboard 127.0.0.1:8080
  penstock run app.py --metrics 127.0.0.1:9404
""",
    )
    parser.add_argument("target", metavar="FILE|MODULE[:NAME]")
    parser.add_argument(
        "--application-id", metavar="NAME",
        help="prefix of internal topics and consumer group id; must not change between runs",
    )
    parser.add_argument(
        "--master", metavar="URL", type=spark_master,
        help="the Spark master (default: this machine); 'inline' runs in this process, without "
        "Spark",
    )
    parser.add_argument(
        "--execution", choices=("batch", "continuous"),
        help="'continuous': long-lived Spark tasks that commit on their own; 'batch': a Spark job "
        "for each batch (default: continuous, with --once batch)",
    )
    parser.add_argument(
        "--once", action="store_true",
        help="process the existing records and stop, instead of waiting for new ones",
    )
    add_config_options(parser)
    parser.add_argument("--state-dir", metavar="DIR", help="directory of the state stores")
    parser.add_argument(
        "--create-topics", metavar="N", type=positive_int,
        help="create missing topics with N partitions",
    )
    _add_observation_options(parser)
    parser.add_argument("--quiet", action="store_true", help="show only warnings and errors")
    parser.add_argument(
        "--verbose", action="store_true", help="show every commit and informational log messages"
    )
    add_log_options(parser)


def _add_observation_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that let others see the application."""
    parser.add_argument(
        "--serve", metavar="[HOST:]PORT", type=http_address,
        help="serve the state of the stores over HTTP",
    )
    parser.add_argument(
        "--dashboard", metavar="[HOST:]PORT", type=http_address,
        help="show the application in the browser; includes --serve",
    )
    add_dashboard_options(parser)
    parser.add_argument(
        "--metrics", metavar="[HOST:]PORT", type=http_address,
        help="serve the metrics to Prometheus, on the path /metrics",
    )
    parser.add_argument(
        "--otlp", metavar="URL",
        help="send metrics and traces to a collector of OpenTelemetry, such as "
        "http://127.0.0.1:4318",
    )
    add_http_options(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> None:
    """Run the application until it stops; raises the error that stopped it."""
    reject_combination(quiet=args.quiet, verbose=args.verbose)
    reject_combination(serve=args.serve is not None, dashboard=args.dashboard is not None)
    if args.allow_actions and args.dashboard is None:
        raise UsageError("--allow-actions is an option of the dashboard. Add --dashboard 8080.")
    log_options = LogOptions.of(args)
    # JSON lines are not mixed with the status line.
    quiet = args.quiet or (log_options.is_json and log_options.file is None)
    # The other commands start faster without the DSL.
    from penstock.cli.run_config import build_config  # noqa: PLC0415
    from penstock.cli.status_line import StatusLine  # noqa: PLC0415
    from penstock.cli.topic_check import check_topics  # noqa: PLC0415
    from penstock.cli.topology_loader import load_target  # noqa: PLC0415

    handlers = list(logging.getLogger().handlers)
    target = load_target(args.target)
    # An application that configures logging keeps its configuration.
    configures_logging = logging.getLogger().handlers != handlers
    config = build_config(target, args)
    if args.once and config.execution is None:
        config = config.with_(execution="batch")
    address = args.serve or args.dashboard
    settings = None if address is None else http_settings(args, address)
    metrics = None if args.metrics is None else http_settings(args, args.metrics)
    if settings is not None and settings.port and not config.application_server:
        announced = announced_address(address)
        config = config.with_(application_server=f"{announced.host}:{announced.port}")
    topology = target.build(config)
    check_topics(topology, config, terminal, partitions=args.create_topics, quiet=quiet)
    _send_to_workers(target, in_this_process=args.master == "inline")
    streams: Streams | None = None
    status = StatusLine(
        terminal, config.application_id, quiet=quiet, every_commit=args.verbose,
        is_continuous=config.is_continuous,
        lag=lambda: None if streams is None else streams.lag(),
    )
    own_logging = configures_logging and not log_options.is_explicit
    try:
        with (
            print_to_status_line(status),
            nullcontext() if own_logging else run_logging(status, log_options),
        ):
            streams = _create_application(topology, config, args, status)
            with (
                nullcontext() if settings is None else _serve(streams, settings, status, args),
                nullcontext() if metrics is None else _serve_metrics(streams, metrics, status),
            ):
                _run(streams, status, once=args.once)
    finally:
        status.close()
    if not quiet:
        terminal.note(_summary(status, config))


def _create_application(
    topology: Topology, config: StreamsConfig, args: argparse.Namespace, status: StatusLine
) -> Streams:
    from penstock.app import Streams  # noqa: PLC0415

    streams = Streams(
        topology, config, master=args.master, on_batch=status.add_commit, out=status.write_results,
        on_standby=lambda holder: status.set_state(
            "STANDBY", f"{holder} runs the application; this instance takes over when it stops"
        ),
    )
    first = "lanes" if config.is_continuous else "the first batch"
    start = "" if args.master == "inline" else f"starting Spark, then {first}"
    streams.set_state_listener(lambda new, old: _show_state(status, new, old, start))
    streams.set_global_state_restore_listener(_restore_listener(status))
    return streams


@contextmanager
def _serve(
    streams: Streams, settings: HttpSettings, status: StatusLine, args: argparse.Namespace
) -> Iterator[None]:
    from penstock.queries.http import Server, create_app  # noqa: PLC0415

    if args.dashboard is None:
        app, message = create_app(streams, settings), "Serving the state of the stores on {}."
    else:
        from penstock.web.dashboard import create_dashboard  # noqa: PLC0415

        app = create_dashboard(streams, settings, allow_actions=args.allow_actions)
        message = "The dashboard is on {}/dashboard."
    with Server(app, settings) as server:
        status.write_message(message.format(server.url))
        yield


@contextmanager
def _serve_metrics(streams: Streams, settings: HttpSettings, status: StatusLine) -> Iterator[None]:
    from penstock.queries.metrics_server import MetricsServer  # noqa: PLC0415

    with MetricsServer(streams.metrics, settings) as server:
        status.write_message(f"Serving metrics on {server.url}.")
        yield


def _show_state(status: StatusLine, state: State, before: State, start: str) -> None:
    is_start = (before.value, state.value) == ("CREATED", "REBALANCING")
    status.set_state(state.value, start if is_start else "")


def _run(streams: Streams, status: StatusLine, *, once: bool) -> None:
    """Start the application and keep the status up to date until it stops."""
    streams.start()
    try:
        if once:
            while not (streams.is_caught_up(TICK_S) or streams.state.has_ended):
                status.tick()
            streams.close()
            streams.wait()
            return
        while not streams.wait(TICK_S):
            status.tick()
    except BrokenPipeError:
        # The receiver of standard output, to which print steps write, has exited.
        streams.close()
        raise
    except Exception as error:
        streams.close()
        raise _application_error(streams, error) from error
    except BaseException:
        # Ctrl-C or SIGTERM. A second Ctrl-C interrupts `close`.
        status.set_state("STOPPING", f"{_pending_work(streams)}press Ctrl-C again to stop at once")
        streams.close()
        raise


def _pending_work(streams: Streams) -> str:
    """Describe what a stop waits for. A standby has nothing to finish."""
    if streams.waits_for is not None:
        return ""
    if streams.state.value != "RUNNING":
        return "waiting for the startup to finish; "
    work = "last commit" if streams.config.is_continuous else "running batch"
    return f"waiting for the {work} to finish; "


def _application_error(streams: Streams, error: Exception) -> Exception:
    """Describe a failure: the error, the record, and the user's part of the traceback."""
    title = f"Application '{streams.config.application_id}' failed"
    user_traceback: str = getattr(error, "user_traceback", "").rstrip()
    processor: Any = getattr(error, "processor", None)
    if processor is None:
        message = f"{title}. {error}"
        return CommandError(f"{message}\n\n{user_traceback}" if user_traceback else message)
    fields = {
        "processor": processor, "store": getattr(error, "store", None),
        "task": getattr(error, "task_id", None),
        "topic": getattr(error, "topic", None), "partition": getattr(error, "partition", -1),
        "offset": getattr(error, "offset", -1), "key": getattr(error, "key", None),
    }
    outcome = (
        "The open transaction of its lane was aborted." if streams.config.is_continuous
        else "The batch was not committed."
    )
    lines = [
        f"  {name + ':':10} {value}" for name, value in fields.items()
        if value is not None and value != -1
    ]
    cause = error.__cause__
    reason = f"{type(cause).__name__}: {cause}" if cause is not None else str(error)
    setting: str | None = getattr(error, "handler_setting", None)
    advice = "" if setting is None else (
        f" To skip records like this one, set {setting}=continue."
    )
    return CommandError("\n".join((
        f"{title}: {reason}", *lines, *(("", user_traceback) if user_traceback else ()), "",
        f"{outcome}{advice}",
    )))


def _summary(status: StatusLine, config: StreamsConfig) -> str:
    plural = "commits" if config.is_continuous else "batches"
    return (
        f"{config.application_id}: stopped after {status.commits:,} "
        f"{status.unit if status.commits == 1 else plural}, "
        f"{status.records:,} record{'' if status.records == 1 else 's'}."
    )


def _restore_listener(status: StatusLine) -> Any:
    from penstock.engine.observe.restore import StateRestoreListener  # noqa: PLC0415

    class RestoreProgress(StateRestoreListener):
        """Shows the progress of restores in the status line."""

        def __init__(self) -> None:
            self.totals: dict[Any, tuple[int, int]] = {}

        def on_restore_start(
            self, partition: Any, store: str, starting_offset: int, ending_offset: int
        ) -> None:
            self.totals[partition, store] = (0, ending_offset - starting_offset)
            status.update_restore((partition, store), *self.totals[partition, store])

        def on_batch_restored(
            self, partition: Any, store: str, batch_end_offset: int, restored: int
        ) -> None:
            done, total = self.totals[partition, store]
            self.totals[partition, store] = (done + restored, total)
            status.update_restore((partition, store), done + restored, total)

        def on_restore_end(self, partition: Any, store: str, total: int) -> None:
            status.update_restore((partition, store), 1, 1)

        on_restore_suspended = on_restore_end

    return RestoreProgress()


def _send_to_workers(target: TopologyTarget, *, in_this_process: bool) -> None:
    """Send the file to the workers by value, and let them import its neighbours.

    Without Spark, too, so that the same objects are refused.
    """
    from penstock.engine.packaging.pickling import pickle_by_value  # noqa: PLC0415

    if target.is_file:
        pickle_by_value(target.module)
    if in_this_process:
        return
    previous = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [*target.import_paths, *([previous] if previous else [])]
    )
