"""Padding, with a value or with what lies at the border."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.split.export.relax_onnx.graph_writer import GraphWriter
from pipeline.split.export.relax_onnx.operands import integers
from pipeline.split.export.relax_onnx.tensors import Tensor, Unwritable, constant

_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "edge": "edge"}
_NUMPY_MODES = {"symmetric": "symmetric", "circular": "wrap"}
"""Those that came late to ONNX, or not at all: the places are gathered instead."""


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
    operands = [source, constant([*widths[::2], *widths[1::2]], np.int64)]
    if mode == "constant":
        operands.append(graph.scalar(float(call.attrs.pad_value), source))
    extents = [extent + sum(pair) for extent, pair in zip(source.shape, pairs, strict=True)]
    return graph.node("Pad", operands, extents, mode=_MODES[mode])


def _gather(graph: GraphWriter, source: Tensor, pairs: Sequence[tuple[int, int]], mode: Any) -> Tensor:
    for axis, width in enumerate(pairs):
        if any(width):
            places = np.pad(np.arange(source.shape[axis]), width, mode)
            source = graph.gather(source, constant(places), axis)
    return source


WRITERS = {"nn.pad": _pad}
