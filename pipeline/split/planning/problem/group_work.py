"""GroupWork: operations and bytes of a fused group, on any device."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from weakref import WeakKeyDictionary

import numpy as np

from pipeline.core import packed_model
from pipeline.core.board.board_checks import FAMILIES
from pipeline.core.compiled_file import CompiledFile
from pipeline.model.operators import operator_family, operator_kind, suits_winograd
from pipeline.split.graph import Graph
from pipeline.split.model_operators import Operator
from pipeline.split.planning.problem.arrays import Array
from pipeline.split.products import end_products

# Whatever else is in a group takes longer, and is what its family says.
_LIGHTEST = ("elementwise", "movement")

_works: WeakKeyDictionary[Graph, tuple[GroupWork, ...]] = WeakKeyDictionary()


@dataclass(frozen=True)
class GroupWork:
    """The work of a fused group."""

    flops: int
    traffic: int
    """Bytes that it reads and writes; what stays inside it does not count."""
    families: frozenset[str]
    family: str
    """Family of its heaviest operator, whose loops the others join."""
    dtypes: frozenset[str]
    """Dtypes of the tensors across its borders."""
    reads_bytes: bool
    """True if all that it reads is bytes: whatever is inside, sums of their products take the time."""
    has_islands: bool
    """True if the model's own runtime computes some of it."""
    parameters: int = 0
    """Part of the traffic that is constant."""
    results: int = 0
    """Elements that it writes."""
    float_share: float = 0.0
    """Part of the traffic in float32, which devices may keep in fewer bytes."""
    winograd_flops: int = 0
    winograd_bytes: int = 0
    """Operations, and bytes of weights, of convolutions that Winograd's transforms suit."""
    is_end: bool = False
    """True if it has one of the graph's first or last products, see `pipeline.split.products.end_products`."""
    compiled: CompiledFile | None = None
    """The file that it is, of a vendor's compiler."""

    @staticmethod
    def of(graph: Graph, group: Sequence[Operator], ends: Collection[str] = ()) -> GroupWork:
        """Return the work of some operators of a graph."""
        results = {name for operator in group for name in operator.outputs}
        reads = {name for operator in group for name in operator.inputs}
        # Kernels of a fused group keep what is between their operators in registers and caches.
        borders = [graph.tensors[name] for name in results ^ reads]
        families = group_families(group)
        reads_bytes = all(graph.tensors[name].dtype in {"int8", "uint8"} for name in reads - results)
        parameter_bytes = sum(operator.parameter_bytes for operator in group)
        traffic = sum(tensor.nbytes for tensor in borders) + parameter_bytes
        floats = sum(tensor.nbytes for tensor in borders if tensor.dtype == "float32")
        suited = [operator for operator in group if any(map(_suits_winograd, operator.calls))]
        return GroupWork(
            flops=sum(operator.flops for operator in group),
            traffic=traffic,
            families=frozenset(families),
            family=_heaviest(families),
            dtypes=frozenset(_dtype_name(tensor.dtype) for tensor in borders),
            reads_bytes=reads_bytes,
            has_islands=any(operator.kind in packed_model.RUNTIMES for operator in group),
            parameters=parameter_bytes,
            results=sum(math.prod(graph.tensors[name].shape) for name in results - reads),
            float_share=(floats + (0 if reads_bytes else parameter_bytes)) / max(1, traffic),
            winograd_flops=sum(operator.flops for operator in suited),
            winograd_bytes=sum(operator.parameter_bytes for operator in suited),
            is_end=any(name in ends for operator in group for call in operator.calls for name in call.outputs),
            compiled=next((file for file in graph.compiled if file.tensor in results), None),
        )


@dataclass(frozen=True)
class WorkTable:
    """Columns of several groups' `GroupWork`."""

    flops: Array
    traffic: Array
    reads_bytes: Array
    parameters: Array
    results: Array
    float_share: Array
    winograd_flops: Array
    winograd_bytes: Array
    is_end: Array

    @staticmethod
    def of(works: Sequence[GroupWork]) -> WorkTable:
        """Return the columns of groups' work."""
        return WorkTable(*(np.array([getattr(work, field.name) for work in works]) for field in fields(WorkTable)))


def groups(graph: Graph) -> list[list[Operator]]:
    """Return the operators of each fused group."""
    operators: list[list[Operator]] = []
    for operator in graph.operators:
        if operator.group == len(operators):
            operators.append([])
        operators[operator.group].append(operator)
    return operators


def group_works(graph: Graph) -> tuple[GroupWork, ...]:
    """Return the work of each fused group of a graph."""
    # All devices of a board ask for it, and it takes a moment in a graph of thousands of operators.
    if graph not in _works:
        ends = set(end_products(graph))
        _works[graph] = tuple(GroupWork.of(graph, group, ends) for group in groups(graph))
    return _works[graph]


def with_works(graph: Graph, works: Sequence[GroupWork]) -> Graph:
    """Return a copy of a graph whose groups have other work."""
    copy = replace(graph)
    _works[copy] = tuple(works)
    return copy


def group_traffic(graph: Graph) -> np.ndarray:
    """Return the bytes read and written by each group."""
    return np.array([work.traffic for work in group_works(graph)], np.float64)


def group_family(group: Sequence[Operator]) -> str:
    """Return a group's family: its heaviest operator's."""
    return _heaviest(group_families(group))


def group_families(group: Sequence[Operator]) -> set[str]:
    """Return the families of all operators of a fused group."""
    return {
        operator_family(call.kind, call.lines[0].value if call.lines else None)
        for operator in group
        for call in operator.calls
    }


def _suits_winograd(call: Operator) -> bool:
    return bool(call.lines) and operator_kind(call.kind).family == "convolution" and suits_winograd(call.lines[0].value)


def _heaviest(families: set[str]) -> str:
    heavy = (name for name in FAMILIES if name not in _LIGHTEST)
    return next((name for name in (*heavy, *_LIGHTEST) if name in families), _LIGHTEST[-1])


@lru_cache
def _dtype_name(dtype: str) -> str:
    return str(np.dtype(dtype).name)
