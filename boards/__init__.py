"""Boards: one TOML file per board, and the detected ``host``."""

from __future__ import annotations

from pathlib import Path

from pipeline.core.board import board_file
from pipeline.core.board.board import Board
from pipeline.errors import BoardError, near

PROJECT = "soc-pipeline"
HOST = "host"
EXAMPLE = "example"
"""Template board: explains every key, describes no real board."""

_FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Return the names of the shipped boards, ``host`` first."""
    # Sorted: a folder lists its entries in an order of its own.
    return [HOST, *sorted(path.stem for path in _FOLDER.glob(f"*{board_file.SUFFIX}") if path.stem != EXAMPLE)]


def get(name: str) -> Board:
    """Return the board of a name, of a TOML file, or of one that ``profile --export`` wrote.

    Raises
    ------
    BoardError
        If there is no such board; the message lists those that exist.  A wrong file is an error too, and so is a
        processor that TVM does not know.
    """
    if name == HOST:
        from pipeline.executor import host

        return host.board()
    path = board_path(name)
    board = board_file.read(path)
    # A user's mistake there would show as slow code only, long after.
    if path.parent != _FOLDER:
        from pipeline.executor.targets import check

        check(board, path)
    return board


def board_path(name: str) -> Path:
    """Return the TOML file of a board's name or path.

    Raises
    ------
    BoardError
        If there is no board of this name.
    """
    if name.endswith((board_file.SUFFIX, board_file.EXPORT_SUFFIX)) or Path(name).parent != Path():
        return Path(name)
    # `host` is none of the files: it is found out by looking at the machine.
    if name not in (*names(), EXAMPLE) or name == HOST:
        # Without `EXAMPLE`: it can be read, but no machine is like it.
        candidates = names()
        raise BoardError(
            f"unknown board {name!r}; known are {', '.join(candidates)}, and TOML files such as 'my.toml'"
            f"{near(name, candidates)}"
        )
    return _FOLDER / f"{name}{board_file.SUFFIX}"
