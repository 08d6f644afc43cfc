"""Open shapes of a TFLite file, and constants from shapes, by LiteRT."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.packed_model import LITERT
from pipeline.errors import ModelError
from pipeline.frontends.tflite.flatbuffer import TfliteGraph, TfliteOperator, TfliteTensor
from pipeline.frontends.tflite.probing import ProbeFailed, probe
from pipeline.system.distribution import install_command

MOST_ELEMENTS = 1 << 20
"""Most elements of a computed constant above all its operands."""

# By kind: the places of the operands whose values the shape of a result follows from.
_SHAPE_OPERANDS: dict[str, tuple[int, ...]] = {
    "ARG_MAX": (1,), "ARG_MIN": (1,), "BATCH_TO_SPACE_ND": (1, 2), "BROADCAST_TO": (1,), "CONV_3D_TRANSPOSE": (0,),
    "EXPAND_DIMS": (1,), "FILL": (0,), "MEAN": (1,), "MIRROR_PAD": (1,), "MULTINOMIAL": (1,),
    "NON_MAX_SUPPRESSION_V4": (2,), "NON_MAX_SUPPRESSION_V5": (2,), "ONE_HOT": (1,), "PAD": (1,), "PADV2": (1,),
    "RANDOM_STANDARD_NORMAL": (0,), "RANDOM_UNIFORM": (0,), "RANGE": (0, 1, 2), "REDUCE_ALL": (1,), "REDUCE_ANY": (1,),
    "REDUCE_MAX": (1,), "REDUCE_MIN": (1,), "REDUCE_PROD": (1,), "RESHAPE": (1,), "RESIZE_BILINEAR": (1,),
    "RESIZE_NEAREST_NEIGHBOR": (1,), "RFFT2D": (1,), "SCATTER_ND": (2,), "SEGMENT_SUM": (1,), "SLICE": (1, 2),
    "SPACE_TO_BATCH_ND": (1, 2), "SPARSE_TO_DENSE": (1,), "SPLIT": (0,), "SPLIT_V": (1, 2), "STRIDED_SLICE": (1, 2, 3),
    "SUM": (1,), "TILE": (1,), "TOPK_V2": (1,), "TRANSPOSE": (1,), "TRANSPOSE_CONV": (0,), "UNIQUE": (0,),
    "UNSORTED_SEGMENT_MAX": (2,), "UNSORTED_SEGMENT_MIN": (2,), "UNSORTED_SEGMENT_PROD": (2,),
    "UNSORTED_SEGMENT_SUM": (2,), "WHERE": (0,),
}  # fmt: skip

# By kind: the place of the operand that says the shape of the result.
_STATED_SHAPES = {"BROADCAST_TO": 1, "FILL": 0, "RESHAPE": 1, "SCATTER_ND": 2, "SLICE": 2, "SPARSE_TO_DENSE": 1}

# They make values of shapes alone.
_OF_SHAPES = {"RANK", "SHAPE"}

# They make other values of the same operands, or shapes that no table can tell.
_UNSTEADY = ("CALL", "CUSTOM", "HASHTABLE", "IF", "MULTINOMIAL", "RANDOM_", "READ_", "STABLEHLO_", "VAR_", "WHILE")


def resolve(path: Path, graph: TfliteGraph, shapes: Sequence[Sequence[Any]]) -> None:
    """Set a graph's shapes, and fold shape-dependent constants, in place.

    Raises `ModelError` if other shapes than the file's need LiteRT, and it is not installed or does not run the model
    with them. The graph's own constants are folded.
    """
    resized = [tensor.name for tensor, shape in zip(graph.inputs, shapes, strict=True) if tensor.shape != tuple(shape)]
    fixed, pending = _analyse(graph)
    if not resized and not pending and not fixed and not _leaves_open(graph):
        return
    if not LITERT.is_installed:
        if resized:
            raise ModelError(
                f"{str(path)!r}: another shape of input {resized[0]!r} needs LiteRT, which infers those behind it; "
                f"run: {install_command('litert')}"
            )
        # The file's own shapes hold for the shapes that it states for its inputs.
        return
    try:
        arrays = probe(graph.content, shapes, fixed, frames=_frames(graph, fixed or resized, pending))
    except ProbeFailed as error:
        if resized:
            raise ModelError(f"{str(path)!r}: LiteRT cannot run the model with these shapes: {error}") from None
        # What it cannot compute may be no part of an island; if it is, that has a message of its own.
        return
    graph.is_resized = bool(resized)
    varying = set()
    for tensor in graph.tensors:
        shape = arrays.get(f"shape_{tensor.number}")
        if shape is None or (shape < 0).any():
            varying.add(tensor.number)
        elif not tensor.is_constant:
            tensor.shape = tuple(int(extent) for extent in shape)
    _mark_open(graph, pending, varying)
    for number in fixed:
        _fold(graph, graph.tensors[number], arrays.get(f"value_{number}"))


def _frames(graph: TfliteGraph, unstated: Collection[Any], pending: Collection[int]) -> int:
    """Return the frames LiteRT must compute. One takes seconds for a large model.

    Two show whether shapes differ, and one has the values and shapes that the file does not state.  All other shapes
    are known when memory is laid out.
    """
    if pending or _has_unsteady(graph):
        return 2
    return 1 if unstated else 0


def _has_unsteady(graph: TfliteGraph) -> bool:
    return any(operator.kind.startswith(_UNSTEADY) for operator in graph.operators)


def _analyse(graph: TfliteGraph) -> tuple[list[int], set[int]]:
    """Return tensors with values from shapes, and tensors with derived shapes."""
    fixed: set[int] = set()
    pending: set[int] = set()
    open_tensors: set[int] = set()

    def is_fixed(tensor: TfliteTensor | None) -> bool:
        return tensor is None or tensor.is_constant or tensor.number in fixed

    for operator in graph.operators:
        numbers = {tensor.number for tensor in operator.outputs if not tensor.is_constant}
        positions = _SHAPE_OPERANDS.get(operator.kind, ())
        depends_on_values = not all(
            is_fixed(tensor) for position, tensor in enumerate(operator.inputs) if position in positions
        )
        reads_open = any(tensor.number in open_tensors for tensor in operator.operands)
        steady = not operator.kind.startswith(_UNSTEADY) and not any(
            operand.is_variable for operand in operator.operands
        )
        is_of_shapes = operator.kind in _OF_SHAPES and not reads_open
        if is_of_shapes or (steady and all(map(is_fixed, operator.inputs))):
            fixed |= numbers
            continue
        if depends_on_values:
            pending |= numbers
        if depends_on_values or reads_open:
            open_tensors |= numbers
    return sorted(fixed), pending


def _states_shape(operator: TfliteOperator) -> bool:
    """Check if a constant operand alone states the result's shape."""
    position = _STATED_SHAPES.get(operator.kind)
    tensor = None if position is None or position >= len(operator.inputs) else operator.inputs[position]
    return tensor is not None and tensor.values is not None and bool((tensor.values >= 0).all())


def _leaves_open(graph: TfliteGraph) -> bool:
    """Check for unstated shapes in a file."""
    computed = [tensor for operator in graph.operators for tensor in operator.outputs]
    tables = (graph.subgraph.Tensors(tensor.number) for tensor in graph.tensors)
    return (
        any(not tensor.shape for tensor in computed)
        or _has_unsteady(graph)
        or any(table.ShapeSignatureLength() and min(table.ShapeSignatureAsNumpy()) < 0 for table in tables)
    )


def _mark_open(graph: TfliteGraph, pending: Collection[int], varying: Collection[int]) -> None:
    """Mark the tensors with value-dependent shapes.

    The result of an operator on an open tensor is open as well, unless it states the shape, or it made the same of two
    frames though what it reads was of two shapes.
    """
    for operator in graph.operators:
        open_operands = [tensor.number for tensor in operator.operands if tensor.is_open]
        is_shown = bool(open_operands) and all(number in varying for number in open_operands)
        reads_open = bool(open_operands) and not _states_shape(operator) and not is_shown
        for tensor in operator.outputs:
            tensor.is_open = tensor.number in varying or tensor.number in pending or reads_open


def _fold(graph: TfliteGraph, tensor: TfliteTensor, values: np.ndarray | None) -> None:
    """Fold a tensor, unless it outgrows its operands."""
    operator = next(maker for maker in graph.operators if tensor in maker.outputs)
    limit = max(MOST_ELEMENTS, sum(operand.values.size for operand in operator.operands if operand.values is not None))
    if values is not None and tensor.in_frames and values.size <= limit:
        tensor.values, tensor.is_constant = values.astype(tensor.dtype, copy=False).reshape(tensor.shape), True
