"""Loops of recurrent operators, by the form on their kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.export.relax_onnx.graph_writer import GraphWriter
from pipeline.export.relax_onnx.tensors import Tensor, constant

_NUMBERS = ("activation_alpha", "activation_beta", "clip", "input_forget", "linear_before_reset")


def write_recurrent(graph: GraphWriter, call: Any, form: Mapping[str, Any]) -> list[Tensor]:
    """Write one direction of a kernel's RNN, LSTM or GRU."""
    kind, hidden = form["kind"], int(form["hidden_size"])
    inputs, *operands = (graph.tensor(operand) for operand in call.args[1].fields)
    products = 2 if kind == "GRU" and not form["linear_before_reset"] else 1
    tiles, operands = operands[:products], operands[products:]
    gates = inputs.shape[-1] // hidden
    data, weights, bias = _projection(graph, inputs)
    recurrent = _untile(graph, tiles, hidden, (2, 1) if products > 1 else (gates,))
    states = [operands.pop(0) for _ in range(2 if kind == "LSTM" else 1)]
    peepholes = operands.pop(0) if form["peepholes"] else None
    second_bias = _pad_bias(graph, operands.pop(0), gates) if kind == "GRU" and form["linear_before_reset"] else None
    lengths = operands.pop(0) if form["lengths"] else None
    biases = graph.concat([bias, second_bias or constant(np.zeros(gates * hidden, np.float32))], 0)
    rows = [_add_axis(graph, tensor) for tensor in (weights, recurrent, biases)]
    initial = [_add_axis(graph, state) for state in states]
    sources = [data, *rows, lengths and graph.cast(lengths, "int32"), *initial]
    if peepholes is not None:
        sources.append(_add_axis(graph, peepholes))
    return _results(graph, kind, sources, form)


def _results(graph: GraphWriter, kind: str, sources: Sequence[Tensor | None], form: Mapping[str, Any]) -> list[Tensor]:
    data, hidden = sources[0], int(form["hidden_size"])
    assert data is not None  # noqa: S101 - it comes first
    steps, batch, _ = data.shape
    last = (1, batch, hidden)
    shapes = [(steps, *last), last, *([last] if kind == "LSTM" else [])]
    allowed = {"LSTM": ("input_forget",), "GRU": ("linear_before_reset",)}.get(kind, ())
    numbers = {
        name: form[name] or None for name in _NUMBERS if name in allowed or name.startswith(("activation", "clip"))
    }
    attributes = {name: form[name] for name in ("direction", "hidden_size", "activations")} | numbers
    outputs = graph.several(kind, sources, [(shape, "float32") for shape in shapes], **attributes)
    # The directions, of which there is one, stand in front; of all states, behind the steps.
    return [
        graph.reshape(outputs[0], (steps, batch, hidden)),
        *(graph.reshape(o, (batch, hidden)) for o in outputs[1:]),
    ]


def _add_axis(graph: GraphWriter, tensor: Tensor) -> Tensor:
    return graph.reshape(tensor, (1, *tensor.shape))


def _projection(graph: GraphWriter, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return data, weights and bias of all gates' inputs. Without a product, the data are the inputs themselves."""
    width = inputs.shape[-1]
    product, bias = inputs, constant(np.zeros(width, np.float32))
    added = graph.makers.get(inputs)
    if added is not None and added.kind == "Add":
        first, second = added.inputs
        if first is not None and second is not None and second.shape == (width,):
            product, bias = first, second
    maker = graph.makers.get(product)
    if maker is not None and maker.kind == "MatMul":
        data, weights = maker.inputs
        if data is not None and weights is not None and len(weights.shape) == 2 and data.shape[:2] == inputs.shape[:2]:
            return data, graph.transpose(weights, (1, 0)), bias
    # Weights that change nothing.
    return inputs, constant(np.eye(width, dtype=np.float32)), constant(np.zeros(width, np.float32))


def _untile(graph: GraphWriter, tiles: Sequence[Tensor], hidden: int, gates: Sequence[int]) -> Tensor:
    """Return the recurrent weights without their tiles of columns."""
    parts = []
    for tile, count in zip(tiles, gates, strict=True):
        rows = graph.transpose(tile, (0, 2, 1))
        table = graph.reshape(rows, (math.prod(rows.shape[:2]), hidden))
        parts.append(graph.slice(table, {0: (0, count * hidden, 1)}, (count * hidden, hidden)))
    return graph.concat(parts, 0)


def _pad_bias(graph: GraphWriter, candidate: Tensor, gates: int) -> Tensor:
    zeros = constant(np.zeros((gates - 1) * candidate.shape[0], np.float32))
    return graph.concat([zeros, candidate], 0)
