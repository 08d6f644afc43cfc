"""``--allow-commands``: permitted vendor commands of builds from plan files."""

from __future__ import annotations

import argparse

from pipeline.commands.shared import targets
from pipeline.errors import PlanError


def argument(parser: argparse.ArgumentParser) -> None:
    """Declare the option."""
    parser.add_argument(
        "--allow-commands",
        action="store_true",
        help="run whatever commands of vendors' tools are in the file of --plan; by default only those that the board "
        "of --board has, or the plan's if that came along with this package",
    )


def check(options: argparse.Namespace) -> None:
    """Refuse commands from a plan's file alone: anybody may have written it.

    Raises `PlanError` if there is one; the message shows it.
    """
    if not options.plan or options.allow_commands:
        return
    import boards
    from pipeline.core.plan.plan import Plan
    from pipeline.core.plan.plan_commands import board_commands, plan_commands

    plan = Plan.load(options.plan)
    if not (commands := plan_commands(plan)):
        return
    trusted_commands = board_commands(targets.board(options))
    # A plan may say that its board is one of these, and have other commands: those of this package count.
    if plan.board.name in boards.names():
        trusted_commands |= board_commands(boards.get(plan.board.name))
    for command in commands:
        if command not in trusted_commands:
            raise PlanError(
                f"{options.plan!r} has a command of its own for {command.kind!r}, {command.key} = {command.text!r}, "
                "which the build would run; name the board that has it by --board, or allow it by --allow-commands"
            )
