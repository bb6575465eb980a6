"""`penstock upgrade`: shows and keeps the state of an application for a changed topology."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.cli.errors import CommandError
from penstock.cli.parsing import (
    Subparsers,
    add_command,
    add_config_options,
    add_json_option,
    name_and_value,
)
from penstock.cli.terminal import Terminal

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.engine.upgrade import StoreChange, UpgradePlan
    from penstock.log.base import Log


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers, "upgrade", upgrade, summary="keep the state of an application whose topology "
        "has changed",
        details="""
Compares the topology with the existing state of the application. --plan shows what becomes of each
store and changes nothing; the exit code is 0 if the application can start as it is. Without --plan,
stores that have another name in the new topology keep their rows: their changelogs are copied to
the new names. The application must not be running.

ROWS is kept, moved (by the upgrade), restored (from the source topic), removed (with the step; the
changelog remains), dropped (by the upgrade), lost (the store has no changelog), refused, unclear,
or new. If it is refused or unclear, the command explains what to do and changes nothing.""",
        examples="""
  penstock upgrade app.py --application-id orders --plan
  penstock upgrade app.py --application-id orders
  penstock upgrade app.py --application-id orders --keep counts=orders-by-store --drop totals --yes
""",
    )
    parser.add_argument("target", metavar="FILE|MODULE[:NAME]")
    parser.add_argument("--application-id", metavar="NAME", help="the id of the application")
    add_config_options(parser)
    parser.add_argument("--plan", action="store_true", help="show the changes, without a change")
    parser.add_argument(
        "--keep", metavar="OLD=NEW", action="append", default=[], type=name_and_value,
        help="store NEW continues with the rows of store OLD (may be repeated)",
    )
    parser.add_argument(
        "--drop", metavar="STORE", action="append", default=[],
        help="give up the rows of a store and delete its changelog (may be repeated)",
    )
    parser.add_argument(
        "--yes", action="store_true",
        help="do not ask for confirmation; required without a terminal",
    )
    add_json_option(parser)


def upgrade(args: argparse.Namespace, terminal: Terminal) -> None:
    """Show the plan, ask for confirmation, carry it out."""
    # The other commands start faster without the DSL and the engine.
    from penstock.cli.run_config import build_config  # noqa: PLC0415
    from penstock.cli.topology_loader import load_target  # noqa: PLC0415
    from penstock.engine.upgrade import apply_upgrade, plan_upgrade  # noqa: PLC0415

    target = load_target(args.target)
    config = build_config(target, args)
    topology = target.build(config)
    with _open_log(config) as log:
        plan = plan_upgrade(log, topology, config, keep=dict(args.keep), drop=args.drop)
        _write_plan(plan, terminal, as_json=args.json)
        if plan.refused or args.plan:
            _end_plan(plan, args, terminal)
            return
        is_needed = not plan.is_compatible or bool(plan.drops)
        if is_needed:
            question = f"Upgrade application '{plan.application_id}'?"
            if not args.yes and not terminal.confirm(question):
                raise CommandError("Nothing was changed.")
            apply_upgrade(log, topology, config, plan)
    if not args.json:
        terminal.note("Done." if is_needed else _COMPATIBLE)


def _open_log(config: StreamsConfig) -> Log:
    from penstock.cli.log_option import report_slow_connection  # noqa: PLC0415
    from penstock.log import open_log, scheme_of  # noqa: PLC0415

    assert config.log is not None
    if not scheme_of(config.log).may_exist(config.log):
        raise CommandError(
            f"The log '{config.log}' does not exist. Use the log of the application."
        )
    with report_slow_connection(config.log):
        return open_log(config.log, create=False, connection=config.connection_settings())


_COMPATIBLE = "The application can start as it is. Nothing was changed."


def _end_plan(plan: UpgradePlan, args: argparse.Namespace, terminal: Terminal) -> None:
    """Report whether the application can start. Raise if it cannot."""
    if plan.refused:
        listed = "\n".join(f"- {each}" for each in plan.refused)
        raise CommandError(
            f"The topology does not fit the existing state of application '{plan.application_id}':"
            f"\n{listed}\nNothing was changed."
        )
    if not plan.is_compatible:
        raise CommandError(
            f"Application '{plan.application_id}' cannot start with this topology yet. Carry out "
            "the plan with the same command without --plan, or give the steps their old store "
            "names."
        )
    if not args.json:
        terminal.note(_COMPATIBLE)


def _write_plan(plan: UpgradePlan, terminal: Terminal, *, as_json: bool) -> None:
    if as_json:
        for store in plan.stores:
            terminal.write_json({"kind": "store", **asdict(store)})
        for topic in plan.topics:
            terminal.write_json({"kind": "topic", **asdict(topic)})
        for message in plan.refused:
            terminal.write_json({"kind": "refused", "message": message})
        return
    if plan.stores:
        terminal.write_table(
            ("STORE", "BECOMES", "ROWS", "RECORDS"),
            [
                (each.store or "-", ", ".join(each.becomes) or "-", each.outcome,
                 "-" if each.records is None else each.records)
                for each in plan.stores
            ],
        )
    if plan.topics:
        terminal.write_table(
            ("TOPIC", "BECOMES", "UNREAD"),
            [(each.topic, each.becomes or "-", each.unread) for each in plan.topics],
        )
    _write_code([each for each in plan.stores if each.code], terminal)
    for warning in plan.warnings:
        terminal.note(warning)


def _write_code(stores: list[StoreChange], terminal: Terminal) -> None:
    """Write the code that keeps the old names of stores."""
    if stores:
        terminal.write_line("To keep the old names instead, write in the topology:")
    for each in stores:
        terminal.write_line(f"  step '{each.step}': {each.code}")
