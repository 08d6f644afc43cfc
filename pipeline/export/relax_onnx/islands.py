"""Islands: operators of ONNX Runtime, written unchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pipeline.core import packed_model, packed_value
from pipeline.export.relax_onnx.graph_writer import GraphWriter
from pipeline.export.relax_onnx.tensors import Node, Tensor, Unwritable
from pipeline.model.passes import bindings


def write_island(graph: GraphWriter, call: Any) -> list[Tensor] | Tensor:
    """Write an island's operators; other runtimes' have no form in ONNX."""
    from onnx import ModelProto

    runtime = packed_model.RUNTIMES.get(packed_model.function_kind(bindings.island(call)))
    if runtime != packed_model.ONNX_RUNTIME:
        raise Unwritable(f"{runtime.title if runtime else 'a function of its own'} computes it")
    packed, *operands = call.args[1].fields
    model = ModelProto.FromString(packed_model.unpack(np.from_dlpack(packed.value)))
    results = graph.placeholder(call.ty)
    outputs = results if isinstance(results, list) else [results]
    inputs = [graph.tensor(operand) for operand in operands]
    if any((spec.shape, spec.dtype) == ((packed_value.CAPACITY,), packed_value.DTYPE) for spec in (*inputs, *outputs)):
        raise Unwritable("it exchanges what has no fixed shape")
    graph.add(Node("Island", [*inputs], outputs, {}, model=model))
    return results  # type: ignore[no-any-return]


def model_opset(model: Any) -> int:
    """Return a model's version of ONNX's own operators."""
    return next((int(opset.version) for opset in model.opset_import if opset.domain in ("", "ai.onnx")), 1)


def raise_opset(model: Any, version: int) -> Any:
    """Return a model in a later version of the operators."""
    from onnx import version_converter

    if model_opset(model) == version:
        return model
    try:
        return version_converter.convert_version(model, version)
    except Exception as error:  # noqa: BLE001 - the converter raises whatever its adapters meet
        raise Unwritable(f"an island of opset {model_opset(model)} in a model of opset {version} ({error})") from None


def rename(graph: Any, names: Mapping[str, str], invent: Callable[[str], str]) -> None:
    """Rename the tensors of a graph and its inner graphs, in place.

    `names` are for those that come from outside, or are known there; `invent` returns a new one for any other.
    """
    renamed = {"": "", **names}
    inner_names = [
        *(value.name for value in graph.input),
        *(tensor.name for tensor in graph.initializer),
        *(tensor.values.name for tensor in graph.sparse_initializer),
        *(name for node in graph.node for name in node.output),
    ]
    renamed.update({name: invent(name) for name in dict.fromkeys(inner_names) if name not in renamed})
    for tensor in graph.initializer:
        tensor.name = renamed[tensor.name]
    for tensor in graph.sparse_initializer:
        tensor.values.name = renamed[tensor.values.name]
    for value in (*graph.input, *graph.output):
        value.name = renamed.get(value.name, value.name)
    del graph.value_info[:]
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed[name] for name in node.output]
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                rename(inner, renamed, invent)
