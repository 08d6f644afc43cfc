"""Padding with a value or with the border."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.export.relax_onnx.axis_orders import find_order, inverse, undo
from pipeline.export.relax_onnx.graph_writer import GraphWriter
from pipeline.export.relax_onnx.operands import integers
from pipeline.export.relax_onnx.tensors import Tensor, Unwritable, constant

_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "edge": "edge"}
_NUMPY_MODES = {"circular": "wrap"}
"""NumPy's name of a mode that came late to ONNX: a gather writes it instead."""


def _pad(graph: GraphWriter, call: Any) -> Tensor:
    source, widths = graph.tensor(call.args[0]), integers(call.attrs.pad_width)
    mode = str(call.attrs.pad_mode)
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    if not any(widths):
        return source
    if mode in _NUMPY_MODES:
        return _gather(graph, source, pairs, _NUMPY_MODES[mode])
    if mode not in _MODES:
        raise Unwritable(f"its mode is {mode}")
    order = find_order([source], len(source.shape), graph.makers)
    originals = undo([source], order, graph.transposed) if order is not None else None
    if order is not None and originals is not None and originals[0] is not None:
        pairs = [pairs[axis] for axis in inverse(order)]
        return graph.transpose(_write(graph, originals[0], pairs, call), order)
    return _write(graph, source, pairs, call)


def _write(graph: GraphWriter, source: Tensor, pairs: Sequence[tuple[int, int]], call: Any) -> Tensor:
    mode, widths = str(call.attrs.pad_mode), [width for side in (0, 1) for width in (pair[side] for pair in pairs)]
    operands = [source, constant(widths, np.int64)]
    if mode == "constant":
        operands.append(graph.scalar(float(call.attrs.pad_value), source))
    extents = [extent + sum(pair) for extent, pair in zip(source.shape, pairs, strict=True)]
    return graph.node("Pad", operands, extents, mode=_MODES[mode])


def _gather(graph: GraphWriter, source: Tensor, pairs: Sequence[tuple[int, int]], mode: Any) -> Tensor:
    for axis, width in enumerate(pairs):
        if any(width):
            indices = np.pad(np.arange(source.shape[axis]), width, mode)
            source = graph.gather(source, constant(indices), axis)
    return source


WRITERS = {"nn.pad": _pad}
