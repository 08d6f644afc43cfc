"""``--target``: a device's target keys on the command line."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pipeline.commands.shared.values import is_whole
from pipeline.errors import BoardError

if TYPE_CHECKING:
    from pipeline.core.board.board import Board

OPTION = "--target"


def argument(parser: argparse._ActionsContainer) -> None:
    """Declare the option."""
    parser.add_argument(
        OPTION,
        metavar="DEVICE.KEY=VALUE",
        action="append",
        help="set a key of a device's target, such as vta.bitstream=vta.bit, or vta.fewest_channels=3 to run "
        "convolutions of pictures on VTA, too; may be repeated",
    )


def board(options: argparse.Namespace) -> Board:
    """Return the options' board with its changes.

    Raises `BoardError` if a change is none, the board has no such device, or no such target is possible.
    """
    import boards

    changed_board = boards.get(options.board)
    for text in options.target or ():
        changed_board = _apply(changed_board, text)
    if options.target:
        from pipeline.executor.targets import check

        # Once, behind all changes: two keys may be possible only together.
        check(changed_board, OPTION)
    return changed_board


def _apply(board: Board, text: str) -> Board:
    path, _, value = text.partition("=")
    # A device may have dots in its name, a key has none.
    device, _, key = path.rpartition(".")
    if not (device and key and value):
        raise BoardError(f"{OPTION} {text!r} must be like 'vta.bitstream=vta.bit': a device, a key and its value")
    return board.with_target(device, {key: _parse(value)})


def _parse(text: str) -> int | bool | str:
    """Parse a value like a board's TOML file, with unquoted texts."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if is_whole(text) else text
