"""Borders: costs of crossing tensors between all pairs of devices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from pipeline.core.board.board import Board, Device
from pipeline.core.board.transfer_costs import enter_route, enter_s, leave_route, leave_s, link_ends
from pipeline.errors import BoardError
from pipeline.split.planning.problem.arrays import Array


@dataclass(frozen=True, eq=False)
class BoardBorders:
    """Seconds and bytes at each position between groups, ends included."""

    enter: Array
    leave: Array
    """Times of `pipeline.split.planning.problem.problem.Problem`."""
    enter_links: Mapping[tuple[str, str], Array]
    leave_links: Mapping[tuple[str, str], Array]
    """Seconds of these for which a link is in use, by its ends."""
    enter_bytes: Array
    leave_bytes: Array
    """Bytes that are copied, of the same shapes."""


def board_borders(board: Board, devices: Sequence[Device], nbytes: Array, counts: Array) -> BoardBorders:
    """Return the devices' borders for bytes and tensors by position."""
    ends: list[Device | None] = [*devices, None]
    size = len(devices)
    enter, leave = np.zeros((size + 1, size, len(nbytes))), np.zeros((size, size + 1, len(nbytes)))
    enter_bytes, leave_bytes = np.zeros_like(enter), np.zeros_like(leave)
    enter_links = defaultdict[tuple[str, str], Array](lambda: np.zeros_like(enter))
    leave_links = defaultdict[tuple[str, str], Array](lambda: np.zeros_like(leave))
    for end, index in product(range(size + 1), range(size)):
        neighbour, device = ends[end], devices[index]
        enter[end, index] = _or_never(enter_s, board, neighbour, device, nbytes, counts)
        leave[index, end] = _or_never(leave_s, board, device, neighbour, nbytes, counts)
        if (route := enter_route(board, neighbour, device)) is not None:
            enter_bytes[end, index] = nbytes
            if link := link_ends(board, route):
                enter_links[link][end, index] = enter[end, index]
        if (route := leave_route(board, device, neighbour)) is not None:
            leave_bytes[index, end] = nbytes
            if link := link_ends(board, route):
                leave_links[link][index, end] = leave[index, end]
    return BoardBorders(enter, leave, enter_links, leave_links, enter_bytes, leave_bytes)


def _or_never(  # noqa: PLR0913, PLR0917 - one call for both directions
    transfer_s: Callable[[Board, Any, Any, Array, Array], Array],
    board: Board,
    source: Any,
    target: Any,
    nbytes: Array,
    counts: Array,
) -> Array:
    try:
        return transfer_s(board, source, target, nbytes, counts)
    except BoardError:
        # There is no link between the two, and none is needed where nothing crosses.
        return np.where(nbytes > 0, np.inf, 0.0)
