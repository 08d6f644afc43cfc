"""Table of converters by ONNX operator, with a foreign domain, and the forms that are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline.frontends.onnx.operators import (
    activations,
    blocks,
    convolutions,
    extents,
    fused,
    normalization,
    pooling,
    quantized,
    reductions,
    resizing,
)
from pipeline.frontends.onnx.operators.node_call import Converter
from pipeline.frontends.onnx.recurrent import operators as recurrent

CONVERTERS: dict[str, Converter] = {
    **activations.CONVERTERS,
    **blocks.CONVERTERS,
    **convolutions.CONVERTERS,
    **extents.CONVERTERS,
    **fused.CONVERTERS,
    **normalization.CONVERTERS,
    **pooling.CONVERTERS,
    **quantized.CONVERTERS,
    **reductions.CONVERTERS,
    **recurrent.CONVERTERS,
    **resizing.CONVERTERS,
}


def wrong_conversion(node: Any, read: set[str]) -> str:
    """Describe a node's form with wrong results, else ""."""
    forms = _WRONG_FORMS.get(node.op_type, ())
    return next((text for is_wrong, text in forms if is_wrong(node, read)), "")


def _attribute(node: Any, name: str) -> Any:
    return next((attribute for attribute in node.attribute if attribute.name == name), None)


def _is_set(name: str) -> Callable[[Any, set[str]], bool]:
    return lambda node, _: (attribute := _attribute(node, name)) is not None and bool(attribute.i)


_WRONG_FORMS: dict[str, tuple[tuple[Callable[[Any, set[str]], bool], str], ...]] = {
    # TVM returns placeholders for these two; nobody may read them, but exporters name them all the same.
    "LayerNormalization": (
        (
            lambda node, read: any(name and name in read for name in node.output[1:]),
            "with mean and deviation as outputs",
        ),
    ),
    # TVM's own returns a row for each candidate, and how many of them count.
    "NonMaxSuppression": ((lambda *_: True, "as a number of boxes that depends on values"),),
    "Resize": (
        # The attribute came with opset 18, and TVM ignores it: edges would be jagged where the model smooths them.
        (_is_set("antialias"), "with antialiasing"),
        # Its two inputs are data and scales; since opset 11 the second one is a region of interest.
        (lambda node, _: len(node.input) == 2, "as opset 10 has it, convert the model to a newer one"),
    ),
    "RoiAlign": (
        # TVM takes the largest of interpolated values, ONNX the largest of the weighted corners before they are added.
        (lambda node, _: (mode := _attribute(node, "mode")) is not None and mode.s == b"max", "of largest values"),
        # TVM writes nothing where a region is empty, and a large one is a loop without end.
        (
            lambda node, _: (ratio := _attribute(node, "sampling_ratio")) is None or ratio.i <= 0,
            "with a number of samples that depends on values",
        ),
    ),
}
