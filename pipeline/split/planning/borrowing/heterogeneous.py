"""Heterogeneous stages: shortest paths over cores and borrowed devices.

A worker computes items on its own cores and, step by step, on devices that other workers use as well.  Scarce resources
have a price: with one for each second of a borrowed device or of a link, the shortest path uses less of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pipeline.split.planning.problem.arrays import Array

OWN = 0
"""The worker's own device, where each stage begins and ends."""


@dataclass(frozen=True)
class Step:
    """Consecutive items on one device."""

    device: int
    """`OWN`, or one that is borrowed."""
    begin: int
    end: int


@dataclass(frozen=True, eq=False)
class StepCosts:
    """Costs of items on a worker's devices, and of changes."""

    seconds: Array
    """Time of each item on each device, the worker's own one first; infinite where it cannot run. Shape (devices,
    items)."""
    start_s: Array
    """Seconds of a device to begin a step: its lock and its launch. Shape (devices,)."""
    moves: Array
    """Seconds of the worker to move what crosses each position from the first device to the second one. Shape (devices,
    devices, items + 1)."""
    uses: Array
    """Share of the seconds on a device for which a resource is used: 1 for the device itself. Shape (resources,
    devices)."""
    move_uses: Array
    """Seconds of `moves` that use a resource, such as a link. Shape (resources, devices, devices, items + 1)."""

    @property
    def items(self) -> int:
        """Length of the chain."""
        return int(self.seconds.shape[1])

    @property
    def resources(self) -> int:
        """Number of things with a price."""
        return len(self.uses)

    @cached_property
    def item_costs(self) -> Array:
        """Seconds and resource uses of items, ``[1 + resources, devices, items]``."""
        used = np.where(np.isfinite(self.seconds), self.seconds, 0.0)
        return np.stack([self.seconds, *(share[:, None] * used for share in self.uses)])

    @cached_property
    def ranks(self) -> Array:
        """Evenly spread numbers in (-1, 1) per item (van der Corput).

        Items that are alike, as in networks of equal blocks, are worth a price all together or not at all.  With prices
        that differ a little by this, a path can borrow for some of them.
        """
        bits = max(1, (self.items - 1).bit_length())
        reversed_bits = [int(f"{item:0{bits}b}"[::-1], 2) for item in range(self.items)]
        ranks: Array = np.array(reversed_bits) / 2 ** (bits - 1) - 1
        return ranks

    @cached_property
    def change_costs(self) -> Array:
        """Seconds and uses of device changes, ``[1 + resources, from, to, items + 1]``."""
        # The worker's own device is there already; a step on another one has to begin.
        starts = np.broadcast_to(self.start_s[None, :, None], self.moves.shape)
        starts = np.where(np.eye(len(self.start_s), dtype=bool)[:, :, None], 0.0, starts)
        uses = [use + share[None, :, None] * starts for use, share in zip(self.move_uses, self.uses, strict=True)]
        return np.stack([self.moves + starts, *uses])


@dataclass(frozen=True, eq=False)
class SpanPaths:
    """Shortest path of each span, for several prices."""

    costs: StepCosts
    prices: Array
    """The last number, if there is one, is by which share the prices of items differ, by their `ranks`. Shape (prices,
    resources) or (prices, resources + 1)."""
    seconds: Array
    """Seconds of a frame on the path of the items ``[i, j)``, as entry ``[j, i]``; infinite where there is none. Shape
    (prices, items + 1, items + 1)."""
    uses: Array
    """Seconds that use each resource. Shape (prices, resources, items + 1, items + 1)."""

    def steps(self, price: int, begin: int, end: int) -> list[Step]:
        """Return the path of items ``[begin, end)`` at a price's index."""
        return shortest_path(self.costs, self.prices[price], begin, end)


def span_paths(costs: StepCosts, prices: Array) -> SpanPaths:
    """Return the shortest paths of all spans, by rows of `prices`."""
    size, count = costs.items + 1, len(prices)
    seconds = np.full((count, size, size), np.inf)
    uses = np.zeros((count, costs.resources, size, size))
    walk = _Walk(costs, prices, size)
    for item in range(costs.items):
        walk.begin(item)
        walk.compute(item)
        walk.change(item + 1)
        # What has come home is the end of a stage.
        end = slice(0, item + 1)
        seconds[:, item + 1, end] = np.where(np.isfinite(walk.values[:, end, OWN]), walk.totals[0, :, end, OWN], np.inf)
        uses[:, :, item + 1, end] = walk.totals[1:, :, end, OWN].swapaxes(0, 1)
    return SpanPaths(costs, prices, seconds, uses)


def chain_totals(costs: StepCosts, prices: Array) -> Array:
    """Return the whole chain's shortest totals by prices, ``[prices, 1 + resources]``."""
    walk = _Walk(costs, prices, 1)
    walk.begin(0)
    for item in range(costs.items):
        walk.compute(item)
        walk.change(item + 1)
    totals: Array = walk.totals[:, :, 0, OWN].T.copy()
    totals[~np.isfinite(walk.values[:, 0, OWN]), 0] = np.inf
    return totals


class _Walk:
    """Best paths to a position by last device, from several begins.

    `values`, shape (prices, begins, devices), are seconds, and what is used of each resource times its price; `totals`,
    shape (1 + resources, prices, begins, devices), are seconds and uses of the same paths, without prices.
    """

    def __init__(self, costs: StepCosts, prices: Array, begins: int) -> None:
        self._costs, self._begins = costs, begins
        self._items, self._changes = _price(costs, prices)
        devices = len(costs.start_s)
        self.values = np.full((len(prices), begins, devices), np.inf)
        self.totals = np.zeros((1 + costs.resources, len(prices), begins, devices))

    def begin(self, position: int) -> None:
        """Let paths begin at a position: at home, others one change away."""
        self.values[:, position] = self._changes[:, OWN, :, position]
        self.totals[:, :, position] = _finite(self._costs.change_costs[:, OWN, :, position])[:, None]

    def compute(self, item: int) -> None:
        """Extend the begun paths by an item."""
        self.values[:, : item + 1] += self._items[:, None, :, item]
        self.totals[:, :, : item + 1] += _finite(self._costs.item_costs[:, :, item])[:, None, None, :]

    def change(self, position: int) -> None:
        """Let the paths change their device at a position."""
        begun = slice(0, min(position, self._begins))
        candidates = self.values[:, begun, :, None] + self._changes[:, None, :, :, position]
        sources = candidates.argmin(axis=2)
        self.values[:, begun] = np.take_along_axis(candidates, sources[:, :, None], 2)[:, :, 0]
        moved = _finite(self._costs.change_costs[..., position])[:, sources, np.arange(sources.shape[-1])]
        picked = np.take_along_axis(self.totals[:, :, begun], np.broadcast_to(sources, moved.shape), 3)
        self.totals[:, :, begun] = picked + moved


def shortest_path(costs: StepCosts, prices: Sequence[float] | Array, begin: int, end: int) -> list[Step]:
    """Return the steps of the shortest path of ``[begin, end)``; `ValueError` if there is none."""
    (items,), (changes,) = _price(costs, np.asarray([prices], np.float64))
    values = changes[OWN, :, begin]
    sources: list[NDArray[np.intp]] = []
    for item in range(begin, end):
        candidates = (values + items[:, item])[:, None] + changes[:, :, item + 1]
        sources.append(candidates.argmin(axis=0))
        values = candidates.min(axis=0)
    if not np.isfinite(values[OWN]):
        raise ValueError(f"there is no path over the items [{begin}, {end})")
    devices, device = list[int](), OWN
    for origins in reversed(sources):
        device = int(origins[device])
        devices.append(device)
    return join_items(devices[::-1], begin)


def path_totals(costs: StepCosts, steps: Sequence[Step]) -> Array:
    """Return the seconds and uses of steps, ``[1 + resources]``."""
    totals, device = np.zeros(1 + costs.resources), OWN
    for step in steps:
        totals += costs.change_costs[:, device, step.device, step.begin]
        totals += costs.item_costs[:, step.device, step.begin : step.end].sum(axis=1)
        device = step.device
    totals += costs.change_costs[:, device, OWN, steps[-1].end]
    return totals


def waiting_seconds(seconds: Array, uses: Sequence[Array], workers: int) -> Array:
    """Return a frame's seconds in line, among similar workers.

    Mean-value analysis of a closed network (Reiser and Lavenberg, 1980): who comes finds as many in line as there are
    on the average with one worker fewer. `seconds` are a frame's when nothing waits; `uses`, of the same shape, are
    those that use each resource.
    """
    seconds = np.where(np.isfinite(seconds), seconds, 0.0)
    lines, waits = [np.zeros_like(seconds) for _ in uses], np.zeros_like(seconds)
    for count in range(1, workers + 1):
        stays = [use * (1 + line) for use, line in zip(uses, lines, strict=True)]
        waits = sum((stay - use for stay, use in zip(stays, uses, strict=True)), np.zeros_like(seconds))
        rate = count / np.maximum(seconds + waits, 1e-300)
        lines = [rate * stay for stay in stays]
    return waits


def _price(costs: StepCosts, prices: Array) -> tuple[Array, Array]:
    """Return priced seconds of items and changes, by rows of prices."""
    weights, spread = prices[:, : costs.resources], prices[:, costs.resources :]
    used = np.einsum("pr,rdi->pdi", weights, _finite(costs.item_costs[1:]))
    if spread.size:
        used *= 1 + spread[:, :, None] * costs.ranks
    items = costs.seconds + used
    changes = costs.change_costs[0] + np.einsum("pr,rdei->pdei", weights, _finite(costs.change_costs[1:]))
    return items, changes


def _finite(values: Array) -> Array:
    # Infinity times a price of 0 is no number: what cannot be is put back afterwards.
    return np.where(np.isfinite(values), values, 0.0)


def join_items(devices: Sequence[int], begin: int) -> list[Step]:
    """Return the steps of consecutive items from `begin` on."""
    edges = [
        0,
        *(position for position in range(1, len(devices)) if devices[position] != devices[position - 1]),
        len(devices),
    ]
    return [Step(devices[first], begin + first, begin + last) for first, last in pairwise(edges)]
