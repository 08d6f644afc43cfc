"""``--target``: keys of a device's target, set on the command line instead of in a board's file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pipeline.errors import BoardError

if TYPE_CHECKING:
    from pipeline.board import Board

OPTION = "--target"


def argument(parser: argparse.ArgumentParser) -> None:
    """Declare the option."""
    parser.add_argument(
        OPTION,
        metavar="DEVICE.KEY=VALUE",
        action="append",
        help="set a key of a device's target, such as vta.bitstream=vta.bit, or vta.fewest_channels=3 to run "
        "convolutions of pictures on VTA, too; may be repeated",
    )


def board(options: argparse.Namespace) -> Board:
    """Return the board that the options name, with their changes.

    Raises
    ------
    BoardError
        If a change is none, the board has no such device, or no such target is possible.
    """
    import boards

    made = boards.get(options.board)
    for text in options.target or ():
        made = _changed(made, text)
    if options.target:
        from pipeline.executor.targets import check

        check(made, OPTION)
    return made


def _changed(board: Board, text: str) -> Board:
    place, _, value = text.partition("=")
    device, _, key = place.rpartition(".")
    if not (device and key and value):
        raise BoardError(f"{OPTION} {text!r} must be like 'vta.bitstream=vta.bit': a device, a key and its value")
    return board.with_target(device, {key: int(value) if value.isdecimal() else value})
