"""Layouts: other tiles and depths for a kernel that a rule writes, the likely ones first."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from pipeline.executor.schedules import machine as machines
from pipeline.executor.schedules import writers
from pipeline.executor.schedules.anchors import Description, Fused
from pipeline.executor.schedules.machine import Machine
from pipeline.executor.schedules.tiled import tiles
from pipeline.executor.schedules.tiled.packing import Layout
from pipeline.executor.tuning import workload
from pipeline.executor.tuning.search import BATCH, Proposal

SLOWER = 1.4
"""A tile whose estimate is so many times the best one's is not worth a trial."""

RULES = ("convolution", "dense")
"""Whose weights are packed by a layout."""


def of(anchor: Fused) -> Layout | None:
    """Return the layout of an anchor's float32 weights, or None if it has none."""
    if anchor.description.rule not in RULES:
        return None
    form = msgspec.json.decode(anchor.description.detail, type=Layout)
    return form if form.each == 1 else None


def others(form: Layout, machine: Machine) -> list[Layout]:
    """Return the layouts that may be better than a rule's, always in the same order."""
    window = form.window.flattened() if form.window.pointwise else form.window
    cycles = {tile: tiles.cycles(tile, window, machine) for tile in tiles.candidates(window, machine, form.vectors)}
    likely = sorted((tile for tile in cycles if cycles[tile] <= SLOWER * min(cycles.values())), key=cycles.__getitem__)
    ranked = [
        (number + 2 * place, replace(form, tile=tile, depth=depth))
        for number, tile in enumerate(likely)
        for place, depth in enumerate(_depths(form, machine))
    ]
    return [each for _, each in sorted(ranked, key=lambda pair: pair[0]) if each != form]


def _depths(form: Layout, machine: Machine) -> list[int]:
    """Return the numbers of channels that may be summed up before the next ones, the largest first."""
    depth = form.window.depth
    if form.window.kernel == (1, 1):
        return [depth]
    return [size for size in range(depth, 0, -1) if depth % size == 0 and size >= min(depth, machine.lanes)]


def written(anchor: Fused, form: Layout, machine: Machine, cores: int) -> Any:
    """Return an anchor's function by another layout."""
    return anchor.replaced(writers.write(_described(anchor, form), machine, cores))


def _described(anchor: Fused, form: Layout) -> Fused:
    changed = copy.copy(anchor)
    changed.description = Description(anchor.description.rule, text_of(form))
    return changed


def text_of(form: Layout) -> str:
    """Return a layout as JSON."""
    return msgspec.json.encode(form).decode()


def read(text: str, form: Layout, machine: Machine) -> Layout:
    """Return a layout that was kept as JSON, or the rule's own `form` if it is none that may take its place."""
    try:
        kept = msgspec.json.decode(text, type=Layout)
    except msgspec.MsgspecError:
        return form
    return kept if kept in others(form, machine) else form


class LayoutSearch:
    """Proposes all layouts for an anchor, one after the other.

    Parameters
    ----------
    anchor : Fused
    form : Layout
        The rule's own.
    target : tvm.target.Target
    cores : int
    tried : int
        How many were measured in an earlier search.
    """

    def __init__(self, anchor: Fused, form: Layout, target: Any, cores: int, tried: int) -> None:
        self._anchor, self._machine, self._cores = anchor, machines.of(target), cores
        forms = [each for each in others(form, self._machine) if self._fits(each)]
        self._left: Iterator[Layout] = iter(forms[tried:])

    def candidates(self) -> list[Proposal]:
        """Return the next few layouts; none if there are no others."""
        return [self._proposal(form) for form in itertools.islice(self._left, BATCH)]

    def tell(self, candidates: Sequence[Proposal], seconds: Sequence[float | None]) -> None:
        """Learn nothing: the order is the same anyway."""

    def _proposal(self, form: Layout) -> Proposal:
        function = written(self._anchor, form, self._machine, self._cores)
        return Proposal(workload.module_of(function), text_of(form))

    def _fits(self, form: Layout) -> bool:
        """Whether what overwrites an operand still computes each element once only."""
        anchor = self._anchor
        if not any(anchor.target.same_as(each) for each in anchor.params[:-1]):
            return True
        return writers.exact(_described(anchor, form), self._machine, self._cores)
