"""Footprint: bytes of a graph's fused groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.core.plan.plan import TensorSpec
from pipeline.split.cuts import crossing_bytes
from pipeline.split.graph import Graph
from pipeline.split.planning.problem.arrays import Array

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TensorUse:
    """When the tensors of a graph are made and read."""

    makers: Indices
    last_readers: Indices
    """Groups; -1 where the caller gives it, and the number of groups where he gets it. Shape (tensors,)."""
    nbytes: Array
    """Shape (tensors,)."""
    reads: Indices
    """A tensor, and a group that reads it. Shape (reads, 2)."""

    @staticmethod
    def of(graph: Graph) -> TensorUse:
        """Return the use of a graph's tensors."""
        numbers = {spec.name: number for number, spec in enumerate(graph.inputs)}
        makers = [-1] * len(numbers)
        for operator in graph.operators:
            for name in operator.outputs:
                numbers[name] = len(makers)
                makers.append(operator.group)
        reads = [
            (numbers[name], operator.group)
            for operator in graph.operators
            for name in operator.inputs
            if name in numbers
        ]
        last_readers, pairs = np.array(makers, np.int64), np.array(reads, np.int64).reshape(-1, 2)
        np.maximum.at(last_readers, pairs[:, 0], pairs[:, 1])
        last_readers[[numbers[spec.name] for spec in graph.outputs]] = len(graph.group_ends)
        nbytes = np.array([graph.tensors[name].nbytes for name in numbers], np.float64)
        return TensorUse(np.array(makers, np.int64), last_readers, nbytes, pairs)

    def entries(self, begin: int, end: int) -> tuple[Indices, Indices]:
        """Return foreign tensors of groups ``[begin, end)``, with their last readers."""
        entries = self.reads[(self.reads[:, 1] >= begin) & (self.reads[:, 1] < end)]
        entries = entries[self.makers[entries[:, 0]] < begin]
        last = np.full(len(self.makers), -1)
        np.maximum.at(last, entries[:, 0], entries[:, 1])
        tensors = np.flatnonzero(last >= 0)
        return tensors, last[tensors]


@dataclass(frozen=True, eq=False)
class Footprint:
    """Bytes of a graph."""

    parameters: Array
    workspace: Array
    """Bytes of each fused group: its constants, and all tensors that are alive while it runs, whoever reads them. Shape
    (groups,)."""
    border_bytes: Array
    """Bytes of a frame at each position between groups, the ends included. Shape (groups + 1,)."""
    tensors: TensorUse

    @staticmethod
    def of(graph: Graph) -> Footprint:
        """Return the footprint of a graph."""
        ends = _bytes(graph.frame_inputs), _bytes(graph.frame_outputs)
        border_bytes = np.array([ends[0], *crossing_bytes(graph), ends[1]], np.float64)
        results = [_bytes([graph.tensors[name] for name in operator.outputs]) for operator in graph.operators]
        parameters = [operator.parameter_bytes for operator in graph.operators]
        workspace = border_bytes[:-1] + _sum_by_group(graph, results)
        return Footprint(_sum_by_group(graph, parameters), workspace, border_bytes, TensorUse.of(graph))

    def stage_bytes(self, begin: int, end: int, replicas: int = 1) -> float:
        """Return a stage's bytes, without waiting frames."""
        return float(replicas * (self.parameters[begin:end].sum() + self._peak_bytes(begin, end)))

    def entry_bytes(self, begin: int, end: int) -> float:
        """Return the bytes of a frame waiting before the stage."""
        return float(self.tensors.nbytes[self.tensors.entries(begin, end)[0]].sum())

    def _peak_bytes(self, begin: int, end: int) -> float:
        """Return the most bytes alive at once, without passing tensors."""
        tensors, last = self.tensors.entries(begin, end)
        alive = np.flatnonzero((self.tensors.makers >= begin) & (self.tensors.makers < end))
        change = np.zeros(end - begin + 1)
        change[0] = self.tensors.nbytes[tensors].sum()
        np.subtract.at(change, last + 1 - begin, self.tensors.nbytes[tensors])
        np.add.at(change, self.tensors.makers[alive] - begin, self.tensors.nbytes[alive])
        # What others read, or the caller gets, is there until the stage is done.
        gone = np.minimum(self.tensors.last_readers[alive] + 1, end) - begin
        np.subtract.at(change, gone, self.tensors.nbytes[alive])
        return float(np.cumsum(change)[:-1].max())


def _sum_by_group(graph: Graph, values: Sequence[int]) -> Array:
    # Groups are numbered without gaps, so that the sums by number are the groups'.
    return np.bincount([operator.group for operator in graph.operators], weights=values).astype(np.float64)


def _bytes(specs: Sequence[TensorSpec]) -> int:
    return sum(spec.nbytes for spec in specs)
