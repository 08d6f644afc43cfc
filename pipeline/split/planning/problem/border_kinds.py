"""Borders: costs of crossing tensors between devices, and the kinds of equal costs."""

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
from pipeline.split.planning.problem.problem import Problem


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


Border = tuple[int, int]
"""Processor and kind of a crossed border: borders of equal costs at all positions are one kind."""

Key = tuple[int, int, int]
"""A choice, and the kinds of its two borders."""


@dataclass(frozen=True)
class Segment:
    """One stage of a division."""

    begin: int
    end: int
    choice: int
    """Index of the choice."""
    enter: int
    leave: int
    """Kinds of its borders."""

    @property
    def key(self) -> Key:
        """Choice and kinds of borders."""
        return self.choice, self.enter, self.leave


class Borders:
    """The kinds of borders of a problem.

    `enter` and `leave` have distinct rows of seconds for each processor; the last kind of `leave` is the caller's, and
    it has the hop. `sources` and `targets` are the first neighbours behind such a border. `followers` are the
    processors behind a kind of `leave`, but the caller's.
    """

    def __init__(self, problem: Problem) -> None:
        processors, caller = range(len(problem.processors)), len(problem.processors)
        self.sources: list[list[int]] = []
        self.targets: list[list[int]] = []
        self._enter_kinds: dict[tuple[int, int], int] = {}
        self.followers: list[list[list[int]]] = []
        # What crosses a border takes seconds, and uses of each resource some.
        enter, leave = (
            np.stack([seconds, *loads.values()])
            for seconds, loads in ((problem.enter, problem.enter_loads), (problem.leave, problem.leave_loads))
        )
        for processor in processors:
            kinds = _kinds([enter[:, source, processor] for source in (*processors, caller)])
            self.sources.append(list(dict.fromkeys(kinds)))
            self._enter_kinds.update({(end, processor): self.sources[-1].index(kind) for end, kind in enumerate(kinds)})
            # The caller apart: a last stage leaves to it, whatever the row's equals are.
            kinds = _kinds([leave[:, processor, target] for target in processors])
            self.targets.append([*dict.fromkeys(kinds), caller])
            self.followers.append(
                [[target for target in processors if kinds[target] == kind] for kind in self.targets[-1][:-1]]
            )
        self.enter = self.rows_in(problem.enter)
        self.leave = self.rows_out(problem.leave + problem.hop_s)

    def rows_in(self, values: Array) -> list[list[Array]]:
        """Return values' rows shaped as `enter`, by processor and kind."""
        return [[values[end, index] for end in ends] for index, ends in enumerate(self.sources)]

    def rows_out(self, values: Array) -> list[list[Array]]:
        """Return values' rows shaped as `leave`, by processor and kind."""
        return [[values[index, end] for end in ends] for index, ends in enumerate(self.targets)]

    def enter_kind(self, source: int, target: int) -> int:
        """Return the kind of border into `target`."""
        return self._enter_kinds[source, target]

    def leave_kind(self, processor: int, border: Border | None) -> int | None:
        """Return the kind of border out of a processor, or None."""
        if border is None:
            return len(self.leave[processor]) - 1
        follower, enter = border
        if self.enter_kind(processor, follower) != enter:
            return None
        return next(kind for kind, group in enumerate(self.followers[processor]) if follower in group)


def _kinds(rows: Sequence[Array]) -> list[int]:
    """Return each row's first equal row."""
    return [
        next(index for index, candidate in enumerate(rows[: number + 1]) if np.array_equal(row, candidate))
        for number, row in enumerate(rows)
    ]
