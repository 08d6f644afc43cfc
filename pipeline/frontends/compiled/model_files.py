"""Compiled files that are models still: ONNX with EPContext, and TFLite for the Edge TPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.core.compiled_headers.header import Header
from pipeline.core.plan.stage_plan import TensorSpec
from pipeline.frontends.formats import compiled_kind


def read_edge_tpu(path: Path) -> Header:
    """Return the facts of a TFLite file for the Edge TPU."""
    from pipeline.frontends.tflite.flatbuffer import TfliteGraph
    from pipeline.frontends.tflite.metadata import read_metadata

    graph = TfliteGraph(path.read_bytes())
    inputs, outputs = (
        tuple(TensorSpec(tensor.name, tuple(tensor.shape), tensor.dtype) for tensor in tensors)
        for tensors in (graph.inputs, graph.outputs)
    )
    scales = (tensor.quantization for tensor in (*graph.inputs, *graph.outputs))
    quantizations, metadata = tuple(filter(None, scales)), read_metadata(path)
    return Header("edgetpu", "", inputs, outputs, quantizations=quantizations, metadata=metadata)


def read_context(path: Path) -> Header:
    """Return the facts of an ONNX file with contexts, which lie inside afterwards.

    Raises `ValueError` if a context is missing, or shapes are open.
    """
    import onnx

    model = onnx.load(path)
    chips = set()
    for node in model.graph.node:
        if node.op_type == "EPContext":
            attributes = {attribute.name: attribute for attribute in node.attribute}
            _embed(attributes, path.parent)
            # Of several nodes, one may say it for all.
            source = attributes["source"].s.decode() if "source" in attributes else ""
            chips.add(source.removesuffix("ExecutionProvider"))
    inputs, outputs = (tuple(map(_spec, values)) for values in (model.graph.input, model.graph.output))
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    return Header("epcontext", max(chips), inputs, outputs, model.SerializeToString(), metadata=metadata)


def context_files(path: Path) -> list[Path]:
    """Return the files beside an ONNX file with contexts of it."""
    import onnx

    nodes = onnx.load(path, load_external_data=False).graph.node if compiled_kind(path) == "epcontext" else ()
    values = [value.s for node in nodes for value in node.attribute if value.name == "ep_cache_context"]
    # Others are the contexts themselves.
    return [path.parent / value.decode() for value in values if len(value) < 256 and value.isascii()]


def _embed(attributes: dict[str, Any], folder: Path) -> None:
    """Put a context from a file into its node: a stage of a bundle is one file."""
    import onnx

    embed, context = attributes.get("embed_mode"), attributes.get("ep_cache_context")
    # 1 is the default of the operator's schema.
    if context is None or embed is None or embed.i == 1:
        return
    name = Path(context.s.decode())
    if name.is_absolute() or ".." in name.parts:
        raise ValueError(f"it names the file {str(name)!r}, which does not lie in its folder; move it there")
    if not (folder / name).is_file():
        raise ValueError(f"its context {str(name)!r} is missing; put that file beside it")
    context.CopyFrom(onnx.helper.make_attribute("ep_cache_context", (folder / name).read_bytes()))
    embed.i = 1


def _spec(value: Any) -> TensorSpec:
    import onnx

    tensor = value.type.tensor_type
    extents = [dimension.dim_value for dimension in tensor.shape.dim]
    if not all(dimension.HasField("dim_value") for dimension in tensor.shape.dim):
        raise ValueError(f"the shape of {value.name!r} is open; compile it at one size")
    return TensorSpec(value.name, tuple(extents), str(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)))
