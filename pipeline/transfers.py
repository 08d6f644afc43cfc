"""Transfers: which worker spends how long on moving tensors, as the scheduler moves them.

Tensors travel between memories as arrays of the caller's memory: a stage elsewhere brings in what it reads from there,
and hands out what others read.  A stage in the caller's memory uses them where they are; what it spends is changing
their layout.
"""

from __future__ import annotations

from pipeline.board import Board, Device

LAYOUT = 3.0
"""What a CPU stage spends on the layout of what crosses a cut, in times of fetching it from memory: a cut is in the
model's layout, kernels have one of their own.  Cuts in the middle of three networks took 0.5 to 5 on each side, by the
time of the stages one after the other over that of the whole model."""

Way = tuple[Device, Device]
"""From where to where one worker moves a tensor."""


def home(board: Board) -> Device | None:
    """Return a device of the caller's memory, None if the board has none there: then nothing is said of the caller."""
    local = [device for device in board.devices if not device.address]
    named = [device for device in local if device.memory == "host"]
    return next(iter((*named, *(device for device in local if device.kind == "cpu"))), None)


def entering(board: Board, source: Device | None, target: Device) -> Way | None:
    """Return what way a worker on `target` brings in what `source` made, None if it uses it where it is.

    `source` is None for what the caller gives.
    """
    at_home = home(board)
    origin = source or at_home
    if origin is None or at_home is None or target.memory in (origin.memory, at_home.memory):
        return None
    return (at_home, target) if _by_home(board, origin, target) else (origin, target)


def leaving(board: Board, source: Device, target: Device | None) -> Way | None:
    """Return what way a worker on `source` hands out what `target` reads, None if it leaves it where it is.

    `target` is None for what the caller gets.
    """
    at_home = home(board)
    reader = target or at_home
    if at_home is None or reader is None or source.memory in (reader.memory, at_home.memory):
        return None
    return (source, at_home) if _by_home(board, source, reader) else None


def enter_s(board: Board, source: Device | None, target: Device, nbytes: int) -> float:
    """Return the seconds that a worker on `target` spends on bringing in bytes that `source` made; None is the caller.

    Raises
    ------
    BoardError
        If there is no link.
    """
    if source is not None and source.memory == target.memory:
        # The reader's caches have to fetch them once; what the caller gives is read in any case.
        return board.transfer_s(source, target, nbytes) + _layout_s(target, nbytes)
    return _seconds(board, entering(board, source, target), nbytes)


def leave_s(board: Board, source: Device, target: Device | None, nbytes: int) -> float:
    """Return the seconds that a worker on `source` spends on handing out bytes for `target`; None is the caller.

    Raises
    ------
    BoardError
        If there is no link.
    """
    if target is not None and source.memory == target.memory:
        return _layout_s(source, nbytes)
    return _seconds(board, leaving(board, source, target), nbytes)


def link_ends(board: Board, way: Way | None) -> tuple[str, str] | None:
    """Return the ends of the link that a way occupies, None if it occupies none."""
    link = None if way is None else board.link(way[0].memory, way[1].memory)
    return None if link is None or link.shared else link.ends


def _seconds(board: Board, way: Way | None, nbytes: int) -> float:
    return board.transfer_s(*way, nbytes) if way is not None and nbytes else 0.0


def _layout_s(device: Device, nbytes: int) -> float:
    return LAYOUT * nbytes / device.bytes_per_s if device.kind == "cpu" else 0.0


def _by_home(board: Board, source: Device, target: Device) -> bool:
    """Whether bytes between two memories go through the caller's; otherwise the reader takes their own link."""
    at_home = home(board)
    if at_home is None or at_home.memory in (source.memory, target.memory):
        return True
    return all(board.link(each.memory, at_home.memory) is not None for each in (source, target))


def replicas_on(device: Device, replicas: int = 1) -> int:
    """Return how many replicas a stage has: at least two where one frame can travel while another computes."""
    return max(2, replicas) if device.overlaps else replicas


def own_cores(device: Device, cores: tuple[int, ...]) -> tuple[int, ...]:
    """Return the cores of this machine that a stage has: those of another machine are none."""
    return () if device.kind == "remote" else cores
