"""Boards: what each one has, one file per board."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from pipeline.board import Board
from pipeline.errors import BoardError, near

_BOARDS = {"host": "boards.host"}


def get(name: str) -> Board:
    """Return the board called `name`.

    Raises
    ------
    BoardError
        If there is no such board; the message lists those that exist.
    """
    if name not in _BOARDS:
        raise BoardError(f"unknown board {name!r}; known are {', '.join(_BOARDS)}{near(name, _BOARDS)}")
    describe: Callable[[], Board] = import_module(_BOARDS[name]).board
    return describe()
