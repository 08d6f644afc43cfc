"""Tensor moves: costs of tensors between groups, per processor pair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pipeline.core.board.board import Board, Device
from pipeline.core.board.transfer_costs import Route, enter_route, enter_s, leave_route, leave_s, link_ends
from pipeline.errors import BoardError
from pipeline.prediction.memory_pools import memory_pools
from pipeline.split.graph import Graph

Transfer = Callable[[Board, Any, Any, float], float]
"""Returns the seconds to move bytes from one device to another."""

CALLER = -1
"""In place of a processor or a group: who gives the inputs and gets the outputs."""


@dataclass(frozen=True)
class GroupTensor:
    """A tensor between groups, or for the caller.

    Attributes
    ----------
    maker : int
        Group, or `CALLER`.
    nbytes : int
    readers : int
        Groups that read it, as bits.
    leaves : bool
        Whether the caller gets it.
    """

    maker: int
    nbytes: int
    readers: int
    leaves: bool

    @property
    def passes(self) -> bool:
        """True if a group between maker and reader may ignore it."""
        last = self.readers.bit_length() - 1
        return last > self.maker + 1


def group_tensors(graph: Graph) -> list[GroupTensor]:
    """Return the tensors between groups, and the caller's."""
    makers = {name: operator.group for operator in graph.operators for name in operator.outputs}
    outputs = {spec.name for spec in graph.outputs}
    readers: dict[str, int] = {}
    for operator in graph.operators:
        for name in operator.inputs:
            if makers.get(name, CALLER) != operator.group:
                readers[name] = readers.get(name, 0) | 1 << operator.group
    names = dict.fromkeys((*readers, *sorted(outputs)))
    return [
        GroupTensor(makers.get(name, CALLER), graph.tensors[name].nbytes, readers.get(name, 0), name in outputs)
        for name in names
    ]


def may_pass_by(graph: Graph) -> bool:
    """Check for stages between a tensor's maker and reader."""
    last = len(graph.group_ends) - 1
    return any(tensor.passes or (tensor.leaves and tensor.maker != last) for tensor in group_tensors(graph))


@dataclass(frozen=True)
class TensorMove:
    """Costs of moving a tensor, for one worker.

    Attributes
    ----------
    seconds : float
        Infinite where there is no way.
    is_copied : bool
        Whether it changes its memory.
    ends : tuple of str
        Of the link that it occupies meanwhile, if any.
    """

    seconds: float
    is_copied: bool
    ends: tuple[str, ...]


class TensorMoves:
    """The moves of a graph's tensors on a board.

    Parameters
    ----------
    board : Board
    devices : sequence of Device
        That of each processor.
    tensors : sequence of GroupTensor
    """

    def __init__(self, board: Board, devices: Sequence[Device], tensors: Sequence[GroupTensor]) -> None:
        self._board, self._devices, self.tensors = board, devices, tensors
        self._entries: dict[tuple[int, int, int], TensorMove] = {}
        self._exits: dict[tuple[int, int, int], TensorMove] = {}

    @cached_property
    def memories(self) -> list[int]:
        """For each processor a number of its memory."""
        names = list(dict.fromkeys(device.memory for device in self._devices))
        return [names.index(device.memory) for device in self._devices]

    @cached_property
    def memory_rates(self) -> list[tuple[str, float]]:
        """Memory pool of each processor, and seconds per byte.

        Without a name where nothing is known.
        """
        pools = {name: pool for pool in memory_pools(self._board) if pool.bytes_per_s for name in pool.memories}
        device_pools = [pools.get(device.memory) for device in self._devices]
        return [("", 0.0) if pool is None else (pool.name, 1 / pool.bytes_per_s) for pool in device_pools]

    def entry(self, tensor: int, source: int, target: int) -> TensorMove:
        """Return the costs of bringing in a tensor."""
        key = tensor, source, target
        if key not in self._entries:
            ends = self._device(source), self._devices[target]
            self._entries[key] = self._move(enter_s, enter_route(self._board, *ends), ends, tensor)
        return self._entries[key]

    def exit(self, tensor: int, source: int, target: int) -> TensorMove:
        """Return the costs of handing out a tensor."""
        key = tensor, source, target
        if key not in self._exits:
            ends = self._devices[source], self._device(target)
            self._exits[key] = self._move(leave_s, leave_route(self._board, *ends), ends, tensor)
        return self._exits[key]

    def _device(self, processor: int) -> Device | None:
        return None if processor == CALLER else self._devices[processor]

    def _move(self, transfer_s: Transfer, route: Route | None, ends: tuple[Any, Any], tensor: int) -> TensorMove:
        try:
            seconds = transfer_s(self._board, *ends, float(self.tensors[tensor].nbytes))
        except BoardError:
            return TensorMove(np.inf, is_copied=True, ends=())
        return TensorMove(seconds, route is not None, link_ends(self._board, route) or ())
