"""ONNX's ``Resize`` by weighted elements per axis, in exact coordinates. TVM computes other ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, tirx

from pipeline.frontends.onnx.operators.node_call import NodeCall, integers
from pipeline.model.passes.bindings import array, constant

# In these modes TVM divides by the size less one, also where that is zero.
_BY_CORNERS = ("align_corners", "tf_crop_and_resize")
# In these TVM takes the ratio of the extents for the scale, whatever scale the model states.
_BY_SCALE = ("half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn")

Normalize = Callable[[Any], Any]


@dataclass(frozen=True)
class _ResizedAxis:
    """One resized axis.

    `region` is the part read by ``tf_crop_and_resize``, as shares of the extent, 0 if that is symbolic.
    """

    number: int
    extent: int
    size: int
    scale: np.float32
    region: tuple[float, float]

    @property
    def changes(self) -> bool:
        return self.extent != self.size or self.scale != 1 or self.region != (0.0, 1.0)


def resize(call: NodeCall) -> Any:
    """Return ``Resize`` by ONNX's definition; None where TVM's is right.

    Also None while an extent is unknown.
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
    return _resize_axes(call.normal, inputs[0], mode, axes, attributes)


def _stated_sizes(call: NodeCall, mode: str, inputs: list[Any]) -> list[Any]:
    """Return the inputs with computed sizes replaced by the model's."""
    if mode == "tf_crop_and_resize" and call.is_computed(1):
        raise ValueError("its region depends on values")
    # Where corners are aligned, scales say nothing but the sizes.
    has_scales = mode in _BY_CORNERS and call.is_computed(2) and inputs[2] is not None
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
        return _resize_axes(call.normal, data, mode, axes, attributes)
    method = {"nearest": "nearest_neighbor"}.get(kind := _text(attributes, "mode", "nearest"), kind)
    return relax.op.image.resize2d(
        data, tuple(axis.size for axis in axes[2:]), layout="NCHW", method=method,
        coordinate_transformation_mode=mode, rounding_method="floor",
    )  # fmt: skip


def _resize_axes(
    normal: Normalize, data: Any, mode: str, axes: Sequence[_ResizedAxis], attributes: Mapping[str, Any]
) -> Any:
    dtype = str(data.ty.dtype)
    # Weights are real numbers even if pixels are bytes; ONNX Runtime cuts off the fraction of the result as well.
    if _text(attributes, "mode", "nearest") != "nearest" and dtype != "float32":
        data = normal(relax.op.astype(data, "float32"))
    # Interpolation is a product of one function per axis, so that one axis after the other gives the same sums.
    for axis in axes:
        if axis.changes:
            coordinates = _coordinates(mode, axis)
            data = _interpolate(normal, data, axis.number, _taps(coordinates, axis.extent, attributes))
            if mode == "tf_crop_and_resize":
                # An axis after this one reads filled rows, whose weights add up to one, so that the fill stays what it
                # is.
                is_outside = (coordinates < 0) | (coordinates > axis.extent - 1)
                data = _fill(normal, data, axis.number, is_outside, attributes.get("extrapolation_value", 0.0))
    return data if str(data.ty.dtype) == dtype else relax.op.astype(data, dtype)


def drop_empty(inputs: Sequence[Any]) -> list[Any]:
    """Return the inputs, None for empty ones.

    Opset 11 has no other way to leave out the scales.
    """
    return [None if getattr(array(value), "size", 1) == 0 else value for value in inputs]


def _text(attributes: Mapping[str, Any], name: str, default: str) -> str:
    return str(attributes.get(name, default.encode()).decode())


def _axes(mode: str, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> list[_ResizedAxis]:
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
        _ResizedAxis(number, int(extent), int(target), ratio, bounds)
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


def _is_right_in_tvm(mode: str, axes: Sequence[_ResizedAxis], attributes: Mapping[str, Any]) -> bool:
    # Sizes that depend on values: TVM's own message says so.
    if not axes:
        return True
    # TVM ignores these two attributes, and resizes all axes but the first two.
    is_stretched = _text(attributes, "keep_aspect_ratio_policy", "stretch") == "stretch" and "axes" not in attributes
    if not is_stretched or len(axes) not in (3, 4, 5) or any(axis.changes for axis in axes[:2]):
        return False
    # Also an axis that does not change divides by zero there if its extent is 1.
    if mode in _BY_CORNERS:
        return all(axis.size > 1 for axis in axes[2:])
    return mode in _BY_SCALE and all(axis.scale * np.float32(axis.extent) == axis.size for axis in axes)


def _coordinates(mode: str, axis: _ResizedAxis) -> Any:
    """Return the input positions of output elements, by ONNX's table.

    They are computed in 32 bits, as in ONNX Runtime: which neighbour is the nearest depends on the last bit.
    """
    position, half = np.arange(axis.size, dtype=np.float32), np.float32(0.5)
    last, scale = np.float32(axis.extent - 1), axis.scale
    if mode == "asymmetric":
        return position / scale
    if mode == "tf_half_pixel_for_nn":
        return (position + half) / scale
    if mode in _BY_CORNERS:
        start, end = map(np.float32, axis.region)
        if axis.size > 1:
            return start * last + position * (end - start) * last / np.float32(axis.size - 1)
        return np.zeros_like(position) if mode == "align_corners" else half * (start + end) * last + position
    # PyTorch reads the first pixel, not the one in the middle, if it makes just one.
    if mode == "pytorch_half_pixel" and axis.size == 1:
        return np.zeros_like(position)
    if mode not in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"):
        raise ValueError(f"coordinate_transformation_mode={mode!r} is not supported")
    coordinates = (position + half) / scale - half
    if mode == "half_pixel_symmetric":
        # Where the size was rounded, half of what was cut off goes to each side.
        coordinates += np.float32(axis.extent / 2) * (1 - np.float32(axis.size) / (scale * np.float32(axis.extent)))
    return coordinates


def _taps(
    coordinates: np.ndarray, extent: int, attributes: Mapping[str, Any]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the neighbours' indices and weights, inside the input."""
    mode = _text(attributes, "mode", "nearest")
    if mode == "nearest":
        rounding = _text(attributes, "nearest_mode", "round_prefer_floor")
        index = {
            "round_prefer_floor": np.ceil(coordinates - np.float32(0.5)),
            "round_prefer_ceil": np.floor(coordinates + np.float32(0.5)),
            "floor": np.floor(coordinates),
            "ceil": np.ceil(coordinates),
        }[rounding]
        yield np.clip(index, 0, extent - 1), np.ones_like(coordinates)
        return
    if mode == "linear":
        # Beyond the border the border itself counts, while a cubic curve goes on through its clamped neighbours.
        coordinates = np.clip(coordinates, 0, extent - 1)
    indices = [np.floor(coordinates) + offset for offset in ((0, 1) if mode == "linear" else (-1, 0, 1, 2))]
    distances = np.abs(coordinates - np.stack(indices))
    alpha = float(attributes.get("cubic_coeff_a", -0.75))
    weights = 1 - distances if mode == "linear" else _cubic_weight(distances, alpha)
    if mode == "cubic" and attributes.get("exclude_outside", 0):
        weights *= np.stack([(index >= 0) & (index < extent) for index in indices])
        weights /= weights.sum(axis=0)
    yield from zip((np.clip(index, 0, extent - 1) for index in indices), weights, strict=True)


def _cubic_weight(distance: np.ndarray, alpha: float) -> np.ndarray:
    """Return Keys' cubic kernel.

    "Cubic Convolution Interpolation for Digital Image Processing" (1981), equation 4.
    """
    first_piece = ((alpha + 2) * distance - (alpha + 3)) * distance**2 + 1
    second_piece = alpha * (((distance - 5) * distance + 8) * distance - 4)
    return np.asarray(np.where(distance <= 1, first_piece, second_piece))


def _align(values: np.ndarray, axis: int, rank: int) -> Any:
    return constant(values.reshape(-1, *[1] * (rank - axis - 1)))


def _interpolate(normal: Normalize, data: Any, axis: int, taps: Iterator[tuple[np.ndarray, np.ndarray]]) -> Any:
    total = None
    for indices, weights in taps:
        # Aligned corners, and whole factors, leave neighbours out: no operator for what is multiplied by zero.
        if not weights.any():
            continue
        term = normal(relax.op.take(data, constant(indices.astype(np.int64)), axis))
        if (weights != 1).any():
            term = normal(relax.op.multiply(term, _align(weights.astype(np.float32), axis, data.ty.ndim)))
        total = term if total is None else normal(relax.op.add(total, term))
    return total


def _fill(normal: Normalize, data: Any, axis: int, is_filled: np.ndarray, value: float) -> Any:
    if not is_filled.any():
        return data
    fill = relax.const(value, str(data.ty.dtype))
    return normal(relax.op.where(_align(is_filled, axis, data.ty.ndim), fill, data))


CONVERTERS = {"Resize": resize, "Upsample": upsample}
