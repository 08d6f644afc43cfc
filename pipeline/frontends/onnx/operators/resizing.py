"""ONNX's ``Resize`` by weighted elements per axis, in exact coordinates. TVM computes other ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax, tirx

from pipeline.frontends.onnx.operators.node_call import NodeCall, integers
from pipeline.frontends.operators import resizing as shared
from pipeline.frontends.operators.resizing import BY_CORNERS, ResizedAxis, Resizing
from pipeline.model.passes.bindings import array, constant

# In these TVM takes the ratio of the extents for the scale, whatever scale the model states.
_BY_SCALE = ("half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn")


def resize(call: NodeCall) -> Any:
    """Return ``Resize`` by ONNX's definition; None where TVM's is right.

    The result is also None while an extent is unknown.
    """
    attributes = call.attributes
    mode = _text(attributes, "coordinate_transformation_mode", "half_pixel")
    inputs = _stated_sizes(call, mode, list(call.inputs))
    axes = _axes(mode, inputs, attributes)
    # One operator where it does: kernels that need no tuning know resize2d, and none of picked and weighted rows.
    is_stated = all(call.input(position) is None or not call.is_computed(position) for position in (2, 3))
    if is_stated and _is_right_in_tvm(mode, axes, attributes):
        return None
    if not axes:
        raise ValueError("its scales depend on values")
    if any(axis.changes and not axis.extent for axis in axes):
        return None
    return shared.resize(call.normal, inputs[0], axes, _attributes(mode, attributes))


def _stated_sizes(call: NodeCall, mode: str, inputs: list[Any]) -> list[Any]:
    """Return the inputs with computed sizes replaced by the model's."""
    if mode == "tf_crop_and_resize" and call.is_computed(1):
        raise ValueError("its region depends on values")
    # Where corners are aligned, scales say nothing but the sizes.
    has_scales = mode in BY_CORNERS and call.is_computed(2) and inputs[2] is not None
    if not has_scales and not call.is_computed(3):
        return inputs
    shape, axes = call.shape(), call.attributes.get("axes", range(len(call.shape())))
    pairs = [(shape[axis], call.result_shape()[axis]) for axis in axes]
    sizes = [size for _, size in pairs]
    if call.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        # One of the axes has just the size that was asked for, and its ratio is that of all.
        ratios = {
            size / extent
            for extent, size in pairs
            if all(
                int(np.floor(np.float32(size / extent) * result_extent + 0.5)) == result
                for result_extent, result in pairs
            )
        }
        if len(ratios) != 1:
            raise ValueError("its scale depends on values")
        (ratio,) = ratios
        round_size, slack = (
            (np.ceil, -1e-6) if call.text("keep_aspect_ratio_policy", "") == "not_larger" else (np.floor, 1e-6)
        )
        # The other axes asked for as much, or for more or less, as the policy has it.
        sizes = [int(round_size(ratio * extent + slack)) for extent, _ in pairs]
    return [*inputs[:2], None, integers(sizes)]


def upsample(call: NodeCall) -> Any:
    """Return ``Upsample``: an asymmetric ``Resize`` that rounds down.

    TVM rounds to the nearest instead, and looks for the scales in an attribute, which opset 9 made an input.
    """
    data, mode = call.inputs[0], "asymmetric"
    scales_attribute = call.attributes.get("scales")
    scales = call.inputs[1] if scales_attribute is None else constant(np.array(scales_attribute, np.float32))
    attributes = {"mode": call.attributes.get("mode", b"nearest"), "nearest_mode": b"floor"}
    axes = _axes(mode, [data, None, scales], attributes)
    if not axes or any(axis.changes and not axis.extent for axis in axes):
        raise ValueError("its scales, or the extents that they change, are not known before the model runs")
    if len(axes) != 4 or not _is_right_in_tvm(mode, axes, attributes):
        return shared.resize(call.normal, data, axes, _attributes(mode, attributes))
    method = {"nearest": "nearest_neighbor"}.get(kind := _text(attributes, "mode", "nearest"), kind)
    return relax.op.image.resize2d(
        data, tuple(axis.size for axis in axes[2:]), layout="NCHW", method=method,
        coordinate_transformation_mode=mode, rounding_method="floor",
    )  # fmt: skip


def _attributes(mode: str, attributes: Mapping[str, Any]) -> Resizing:
    return Resizing(
        mode,
        _text(attributes, "mode", "nearest"),
        _text(attributes, "nearest_mode", "round_prefer_floor"),
        float(attributes.get("cubic_coeff_a", -0.75)),
        bool(attributes.get("exclude_outside", 0)),
        attributes.get("extrapolation_value", 0.0),
    )


def drop_empty(inputs: Sequence[Any]) -> list[Any]:
    """Return the inputs, None for empty ones.

    Opset 11 has no other way to leave out the scales.
    """
    return [None if getattr(array(value), "size", 1) == 0 else value for value in inputs]


def _text(attributes: Mapping[str, Any], name: str, default: str) -> str:
    return str(attributes.get(name, default.encode()).decode())


def _axes(mode: str, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> list[ResizedAxis]:
    """Return the node's axes, by default all; none if values decide."""
    shape = inputs[0].ty.shape
    numbers = [int(number) % len(shape) for number in attributes.get("axes", range(len(shape)))]
    extents = np.array(
        [int(shape[axis_number]) if isinstance(shape[axis_number], tirx.IntImm) else 0 for axis_number in numbers]
    )
    region, scales, sizes = (_values(inputs, position) for position in (1, 2, 3))
    if scales is not None:
        # The file has scales in 32 bits, in which ONNX Runtime and ONNX's shape inference round the sizes as well.
        ratios = np.array(scales, np.float32)
        targets = np.floor(ratios * extents.astype(np.float32))
    elif sizes is not None and extents.all():
        targets = np.array(sizes)
        ratios = (targets / extents).astype(np.float32)
        if (policy := _text(attributes, "keep_aspect_ratio_policy", "stretch")) != "stretch":
            ratios[:] = ratios.min() if policy == "not_larger" else ratios.max()
            targets = np.floor(ratios * extents + 0.5)
    else:
        return []
    # Exporters also write regions for other modes, which ignore them.
    if mode != "tf_crop_and_resize" or region is None:
        region = [0.0] * len(numbers) + [1.0] * len(numbers)
    regions = zip(region[: len(numbers)], region[len(numbers) :], strict=True)
    return [
        ResizedAxis(number, int(extent), int(target), ratio, bounds)
        for number, extent, target, ratio, bounds in zip(numbers, extents, targets, ratios, regions, strict=True)
    ]


def _values(inputs: Sequence[Any], position: int) -> list[float] | None:
    """Return a constant input's numbers, or None."""
    value = inputs[position] if position < len(inputs) else None
    if isinstance(value, relax.ShapeExpr):
        is_constant = all(isinstance(extent, tirx.IntImm) for extent in value.values)
        return [int(extent) for extent in value.values] if is_constant else None
    numbers = array(value)
    return None if numbers is None else [float(number) for number in numbers.reshape(-1)]


def _is_right_in_tvm(mode: str, axes: Sequence[ResizedAxis], attributes: Mapping[str, Any]) -> bool:
    # Sizes that depend on values: TVM's own message says so.
    if not axes:
        return True
    # TVM ignores these two attributes, and resizes all axes but the first two.
    is_stretched = _text(attributes, "keep_aspect_ratio_policy", "stretch") == "stretch" and "axes" not in attributes
    if not is_stretched or len(axes) not in (3, 4, 5) or any(axis.changes for axis in axes[:2]):
        return False
    # Also an axis that does not change divides by zero there if its extent is 1.
    if mode in BY_CORNERS:
        return all(axis.size > 1 for axis in axes[2:])
    return mode in _BY_SCALE and all(axis.scale * np.float32(axis.extent) == axis.size for axis in axes)


CONVERTERS = {"Resize": resize, "Upsample": upsample}
