"""Footprint: the bytes that the fused groups of a graph need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.core.plan import TensorSpec
from pipeline.split.cuts import crossing_bytes
from pipeline.split.graph import Graph
from pipeline.split.planning.arrays import Array


@dataclass(frozen=True, eq=False)
class Footprint:
    """The bytes that a graph needs.

    Attributes
    ----------
    parameters, workspace : array of float, shape (groups,)
        Of each fused group: its constants, and all tensors that are alive while it runs.
    border_bytes : array of float, shape (groups + 1,)
        Of a frame at each position between groups, the ends included.
    """

    parameters: Array
    workspace: Array
    border_bytes: Array

    @staticmethod
    def of(graph: Graph) -> Footprint:
        """Return the footprint of a graph."""
        border_bytes = np.array([_bytes(graph.inputs), *crossing_bytes(graph), _bytes(graph.outputs)], np.float64)
        results = [_bytes([graph.tensors[name] for name in operator.outputs]) for operator in graph.operators]
        parameters = [operator.parameter_bytes for operator in graph.operators]
        return Footprint(_by_group(graph, parameters), border_bytes[:-1] + _by_group(graph, results), border_bytes)

    def stage_bytes(self, begin: int, end: int, replicas: int = 1) -> float:
        """Return the bytes of a stage of the groups ``[begin, end)``, without the frames that wait in front of it."""
        return float(replicas * (self.parameters[begin:end].sum() + self.workspace[begin:end].max()))


def _by_group(graph: Graph, values: Sequence[int]) -> Array:
    # Groups are numbered without gaps, so that the sums by number are the groups'.
    return np.bincount([operator.group for operator in graph.operators], weights=values).astype(np.float64)


def _bytes(specs: Sequence[TensorSpec]) -> int:
    return sum(spec.nbytes for spec in specs)
