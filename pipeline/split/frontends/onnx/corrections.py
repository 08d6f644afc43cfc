"""ONNX operators that TVM's importer gets wrong without a word, or takes apart: ours, or refused with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax

from pipeline.split.frontends.onnx.resizing import resize, upsample
from pipeline.split.passes.bindings import array

# BitShift takes unsigned types only (ONNX, operator BitShift, type T).
_DTYPE_BITS = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}


def wrong_conversion(node: Any, read: set[str]) -> str:
    """Describe in what form a node would compute something else than ONNX says; empty if it would not.

    Parameters
    ----------
    node : onnx.NodeProto
    read : set of str
        The tensors that nodes or the model's user read.
    """
    forms = _WRONG_FORMS.get(node.op_type, ())
    return next((text for is_wrong, text in forms if is_wrong(node, read)), "")


def _attribute(node: Any, name: str) -> Any:
    return next((attribute for attribute in node.attribute if attribute.name == name), None)


def _is_set(name: str) -> Callable[[Any, set[str]], bool]:
    return lambda node, _: (attribute := _attribute(node, name)) is not None and bool(attribute.i)


_WRONG_FORMS: dict[str, tuple[tuple[Callable[[Any, set[str]], bool], str], ...]] = {
    # In training mode the statistics are those of the batch, and two more outputs are the updated ones.
    "BatchNormalization": ((_is_set("training_mode"), "in training mode"),),
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
    # TVM takes the largest of interpolated values, ONNX the largest of the weighted corners before they are added.
    "RoiAlign": (
        (lambda node, _: (mode := _attribute(node, "mode")) is not None and mode.s == b"max", "of largest values"),
    ),
}


def correct(kind: str, builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Convert an operator as ONNX defines it; None where TVM is right."""
    convert = _CORRECTIONS.get(kind)
    return None if convert is None else convert(builder.normalize, inputs, attributes)


def _space_to_depth(normal: Callable[[Any], Any], inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    # TVM does not read the attribute and always does what DCR says.
    if attributes.get("mode", b"DCR") != b"CRD":
        return None
    size = int(attributes["blocksize"])
    batch, channels, height, width = (int(extent) for extent in inputs[0].ty.shape)
    # CRD: the channel is the outermost part of the new channels, then row and column inside of the block.
    parts = relax.op.reshape(inputs[0], (batch, channels, height // size, size, width // size, size))
    blocks = normal(relax.op.permute_dims(normal(parts), [0, 1, 3, 5, 2, 4]))
    return relax.op.reshape(blocks, (batch, channels * size * size, height // size, width // size))


def _expand(_: Callable[[Any], Any], inputs: Sequence[Any], __: Mapping[str, Any]) -> Any:
    """Return ``Expand``; an extent of 1 in its shape leaves the tensor's own."""
    # A target that depends on values is left to TVM, which says what it cannot.
    target = array(inputs[1])
    if target is None:
        return None
    extents = [int(extent) for extent in inputs[0].ty.shape]
    shape = np.broadcast_shapes(extents, tuple(target.tolist()))
    return inputs[0] if list(shape) == extents else relax.op.broadcast_to(inputs[0], shape)


def _instance_norm(_: Callable[[Any], Any], inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Return ``InstanceNormalization`` whole; of TVM's nine operators each would pass over the data by itself."""
    data, scale, shift = inputs
    axes = list(range(2, data.ty.ndim))
    # TVM compiles the operator for these two dtypes only; without axes behind the channels, Relax refuses it.
    if not axes or str(data.ty.dtype) not in ("float32", "float16"):
        return None
    return relax.op.nn.instance_norm(data, scale, shift, 1, axes, float(attributes.get("epsilon", 1e-5)))


def _is_infinite(normal: Callable[[Any], Any], inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    # TVM's IsInf reads neither attribute.
    kinds = int(attributes.get("detect_negative", 1)), int(attributes.get("detect_positive", 1))
    signs = {(1, 0): (relax.op.less,), (0, 1): (relax.op.greater,), (0, 0): (relax.op.less, relax.op.greater)}
    is_infinite = normal(relax.op.isinf(inputs[0]))
    for sign in signs.get(kinds, ()):
        is_infinite = normal(
            relax.op.logical_and(is_infinite, normal(sign(inputs[0], relax.const(0, inputs[0].ty.dtype))))
        )
    return is_infinite


def _shift_bits(normal: Callable[[Any], Any], inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Return ``BitShift``; what is shifted by all bits or more is 0, where processors count modulo."""
    dtype = str(inputs[0].ty.dtype)
    # A shift by the width itself is undefined in C and in LLVM; x86 takes the count modulo the width.
    last = relax.const(_DTYPE_BITS[dtype] - 1, dtype)
    shift = relax.op.left_shift if attributes.get("direction") == b"LEFT" else relax.op.right_shift
    shifted_bits = normal(shift(inputs[0], normal(relax.op.minimum(inputs[1], last))))
    return relax.op.where(normal(relax.op.greater(inputs[1], last)), relax.const(0, dtype), shifted_bits)


def _sign(normal: Callable[[Any], Any], inputs: Sequence[Any], _: Mapping[str, Any]) -> Any:
    """Return ``Sign``; of NaN, which is neither above nor below zero, TVM's is 0."""
    # With float16 it is 0 in ONNX Runtime as well, and integers have no NaN.
    if str(inputs[0].ty.dtype) not in ("float32", "float64"):
        return None
    return relax.op.where(normal(relax.op.isnan(inputs[0])), inputs[0], normal(relax.op.sign(inputs[0])))


def _thresholded_relu(normal: Callable[[Any], Any], inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Return ``ThresholdedRelu`` as a choice; TVM's product with 0 or 1 makes NaN of NaN and of minus infinity."""
    dtype = str(inputs[0].ty.dtype)
    threshold = relax.const(float(attributes.get("alpha", 1.0)), dtype)
    return relax.op.where(normal(relax.op.greater(inputs[0], threshold)), inputs[0], relax.const(0, dtype))


def _rms_norm(_: Callable[[Any], Any], inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    if int(attributes.get("axis", -1)) in (0, -len(inputs[0].ty.shape)):
        raise ValueError("over all axes, which TVM cannot compile")


def _power(_: Callable[[Any], Any], inputs: Sequence[Any], __: Mapping[str, Any]) -> Any:
    if "int" in str(inputs[0].ty.dtype):
        raise ValueError("of integers, which TVM cannot compile")


_CORRECTIONS: dict[str, Callable[[Callable[[Any], Any], Sequence[Any], Mapping[str, Any]], Any]] = {
    "BitShift": _shift_bits,
    "Expand": _expand,
    "InstanceNormalization": _instance_norm,
    "IsInf": _is_infinite,
    "Pow": _power,
    "RMSNormalization": _rms_norm,
    "Resize": resize,
    "Sign": _sign,
    "SpaceToDepth": _space_to_depth,
    "ThresholdedRelu": _thresholded_relu,
    "Upsample": upsample,
}
