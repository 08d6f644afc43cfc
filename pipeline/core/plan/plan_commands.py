"""Commands inside a plan. A build runs them as the user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan


class TargetCommand(NamedTuple):
    """A command in a target."""

    kind: str
    key: str
    text: str
    """The kind of device, the key of its target, and the command."""


def board_commands(board: Board) -> set[TargetCommand]:
    """Return the commands in the targets of a board's devices."""
    return {command for device in board.devices for command in _commands(device, device.target or {})}


def plan_commands(plan: Plan) -> list[TargetCommand]:
    """Return the commands that a build by the plan runs."""
    commands = dict[TargetCommand, None]()
    for stage in plan.units:
        device = plan.board.device(stage.device)
        commands.update(dict.fromkeys(_commands(device, {**(device.target or {}), **(stage.options.target or {})})))
    return list(commands)


def _commands(device: Device, target: Mapping[str, object]) -> Iterable[TargetCommand]:
    keys = device.capabilities.command_keys
    return [TargetCommand(device.kind, key, str(target[key])) for key in keys if key in target]
