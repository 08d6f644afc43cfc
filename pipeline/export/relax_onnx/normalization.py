"""Softmax and norms."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.export.relax_onnx.graph_writer import GraphWriter
from pipeline.export.relax_onnx.operands import axes
from pipeline.export.relax_onnx.reductions import reduce
from pipeline.export.relax_onnx.tensors import Tensor, Unwritable, constant


def _softmax(kind: str, graph: GraphWriter, call: Any) -> Tensor:
    source = graph.tensor(call.args[0])
    return graph.node(kind, [source], axis=axes(call.attrs.axis, len(source.shape))[0])


def _batch_norm(graph: GraphWriter, call: Any) -> list[Tensor]:
    attrs = call.attrs
    source, scale, shift, mean, variance = (graph.tensor(operand) for operand in call.args)
    if attrs.training:
        raise Unwritable("it is in training")
    if not attrs.scale:
        scale = constant(np.ones(mean.shape), mean.dtype)
    if not attrs.center:
        shift = constant(np.zeros(mean.shape), mean.dtype)
    axis, epsilon = axes(attrs.axis, len(source.shape))[0], float(attrs.epsilon)
    if axis == 1:
        result = graph.node("BatchNormalization", [source, scale, shift, mean, variance], epsilon=epsilon)
        return [result, mean, variance]
    scale, shift, mean_row, variance_row = (
        _align(graph, parameter, source, [axis]) for parameter in (scale, shift, mean, variance)
    )
    result = _scale(graph, source, mean_row, variance_row, epsilon)
    return [graph.elementwise("Add", graph.elementwise("Mul", result, scale), shift), mean, variance]


def _align(graph: GraphWriter, parameter: Tensor, source: Tensor, over: Sequence[int]) -> Tensor:
    """Write a parameter along some axes of the data."""
    return graph.reshape(
        parameter, [extent if axis in over else 1 for axis, extent in enumerate(source.shape)][min(over) :]
    )


def _scale(graph: GraphWriter, source: Tensor, mean: Tensor, variance: Tensor, epsilon: float) -> Tensor:
    spread = graph.node("Sqrt", [graph.elementwise("Add", variance, graph.scalar(epsilon, variance))])
    return graph.elementwise("Div", graph.elementwise("Sub", source, mean), spread)


def _normalize(graph: GraphWriter, source: Tensor, over: Sequence[int], epsilon: float) -> Tensor:
    """Write values with zero mean and unit variance over axes."""
    distance = graph.elementwise("Sub", source, reduce(graph, "ReduceMean", source, over))
    variance = reduce(graph, "ReduceMean", graph.node("Mul", [distance, distance]), over)
    spread = graph.node("Sqrt", [graph.elementwise("Add", variance, graph.scalar(epsilon, variance))])
    return graph.elementwise("Div", distance, spread)


def _layer_norm(graph: GraphWriter, call: Any) -> Tensor:
    attrs = call.attrs
    source, scale, shift = (graph.tensor(operand) for operand in call.args)
    over, epsilon = axes(attrs.axes, len(source.shape)), float(attrs.epsilon)
    parameters = [scale, shift] if attrs.center else [scale]
    if over == tuple(range(len(source.shape) - len(over), len(source.shape))) and attrs.scale:
        return graph.node("LayerNormalization", [source, *parameters], axis=over[0], epsilon=epsilon)
    result = _normalize(graph, source, over, epsilon)
    if attrs.scale:
        result = graph.elementwise("Mul", result, _align(graph, scale, source, over))
    return graph.elementwise("Add", result, _align(graph, shift, source, over)) if attrs.center else result


def _instance_norm(graph: GraphWriter, call: Any) -> Tensor:
    attrs = call.attrs
    source, scale, shift = (graph.tensor(operand) for operand in call.args)
    channels, over = axes(attrs.channel_axis, len(source.shape)), axes(attrs.axes, len(source.shape))
    if channels == (1,) and over == tuple(range(2, len(source.shape))) and attrs.scale and attrs.center:
        return graph.node("InstanceNormalization", [source, scale, shift], epsilon=float(attrs.epsilon))
    result = _normalize(graph, source, over, float(attrs.epsilon))
    return _scale_channels(graph, result, call, channels)


def _scale_channels(graph: GraphWriter, source: Tensor, call: Any, channels: Sequence[int]) -> Tensor:
    scale, shift = (graph.tensor(operand) for operand in call.args[1:])
    if call.attrs.scale:
        source = graph.elementwise("Mul", source, _align(graph, scale, source, channels))
    return graph.elementwise("Add", source, _align(graph, shift, source, channels)) if call.attrs.center else source


def _group_norm(graph: GraphWriter, call: Any) -> Tensor:
    attrs, source = call.attrs, graph.tensor(call.args[0])
    rank, groups = len(source.shape), int(attrs.num_groups)
    channel, over = axes(attrs.channel_axis, rank)[0], axes(attrs.axes, rank)
    # The channels in two axes, of which the norm is taken over the second and over others.
    extents = (*source.shape[:channel], groups, source.shape[channel] // groups, *source.shape[channel + 1 :])
    beyond = [axis + 1 if axis > channel else axis for axis in over if axis != channel]
    result = _normalize(graph, graph.reshape(source, extents), sorted({*beyond, channel + 1}), float(attrs.epsilon))
    return _scale_channels(graph, graph.reshape(result, source.shape), call, [channel])


def _rms_norm(graph: GraphWriter, call: Any) -> Tensor:
    source, scale = (graph.tensor(operand) for operand in call.args)
    over = axes(call.attrs.axes, len(source.shape))
    # Squares of half-precision numbers overflow.
    wide = graph.cast(source, "float32") if source.dtype in ("float16", "bfloat16") else source
    mean = reduce(graph, "ReduceMean", graph.node("Mul", [wide, wide]), over)
    size = graph.node("Sqrt", [graph.elementwise("Add", mean, graph.scalar(float(call.attrs.epsilon), mean))])
    result = graph.cast(graph.elementwise("Div", wide, size), source.dtype)
    return graph.elementwise("Mul", result, _align(graph, scale, source, over))


WRITERS = {
    "nn.softmax": functools.partial(_softmax, "Softmax"),
    "nn.log_softmax": functools.partial(_softmax, "LogSoftmax"),
    "nn.batch_norm": _batch_norm,
    "nn.layer_norm": _layer_norm,
    "nn.instance_norm": _instance_norm,
    "nn.group_norm": _group_norm,
    "nn.rms_norm": _rms_norm,
}
