"""Resizing and sampling of images."""

from __future__ import annotations

import functools
import math
from typing import Any

from tvm import relax

from pipeline.errors import ModelError
from pipeline.frontends.relay.attributes import Attributes
from pipeline.frontends.relay.builder import BindingBuilder, dtype, shape
from pipeline.frontends.relay.operators.common import Converter, change_layout, reshape
from pipeline.frontends.relay.operators.convolution import check_layout
from pipeline.frontends.relay.operators.indexing import slice_axis

op = relax.op

_SPACE = {2: "HW", 3: "DHW"}
_COORDINATES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn")
_ROUNDINGS = ("", "round", "floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


def _layout(attrs: Attributes, x: Any, axes: int) -> str:
    if len(shape(x)) != axes + 2:
        raise ModelError(f"expected {axes + 2} axes, found the shape {shape(x)}")
    return check_layout("layout", attrs.text("layout", f"NC{_SPACE[axes]}"), f"NC{_SPACE[axes]}")


def resize(builder: BindingBuilder, x: Any, layout: str, size: list[int], **options: Any) -> Any:
    """Return `x` with another size; how is as for Relax."""
    axes = len(size)
    channels_first = f"NC{_SPACE[axes]}"
    operator = {2: op.image.resize2d, 3: op.image.resize3d}[axes]
    call = operator(change_layout(builder, x, layout, channels_first), tuple(size), layout=channels_first, **options)
    return change_layout(builder, builder.emit(call), channels_first, layout)


def _rounding(method: str, coordinates: str, rounding: str) -> str:
    """Return the rounding to a neighbour; defaults depend on the coordinates.

    Relay rounds exact halves up, where Relax rounds them to the even neighbour.
    """
    # From TVM's resize.py, where an empty text means just this.
    if method == "nearest_neighbor" and not rounding:
        rounding = "round" if coordinates == "align_corners" else "floor"
    return "round_prefer_ceil" if rounding == "round" else rounding


def _options(attrs: Attributes, x: Any) -> dict[str, Any]:
    method = attrs.choice("method", "linear", "nearest_neighbor", "cubic")
    coordinates = attrs.choice("coordinate_transformation_mode", *_COORDINATES)
    # An empty text says that it follows from the coordinates; no text at all is the attribute's default.
    rounding = attrs.text("rounding_method", "") if attrs.has("rounding_method") else "round"
    if rounding not in _ROUNDINGS:
        raise ModelError(f"rounding_method={rounding!r} is not supported; supported are {', '.join(_ROUNDINGS[1:])}")
    # Regions of interest only matter to coordinates that are not supported.
    attrs.get("roi"), attrs.get("extrapolation_value")
    return {
        "method": method,
        "coordinate_transformation_mode": coordinates,
        "rounding_method": _rounding(method, coordinates, rounding),
        "cubic_alpha": attrs.number("cubic_alpha", -0.5),
        "cubic_exclude": attrs.integer("cubic_exclude", 0),
        "out_dtype": attrs.dtype("out_dtype", dtype(x)),
    }


def _resize(axes: int, builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    return resize(builder, x, _layout(attrs, x, axes), attrs.positive("size", axes), **_options(attrs, x))


def _resize1d(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    """Resize a row as an image of two equal lines."""
    layout = check_layout("layout", attrs.text("layout", "NCW"), "NCW")
    if len(shape(x)) != 3:
        raise ModelError(f"expected 3 axes, found the shape {shape(x)}")
    x = change_layout(builder, x, layout, "NCW")
    batch, channels, width = shape(x)
    (size,) = attrs.positive("size", 1)
    # Two equal lines, between which any way finds the same: aligned corners of a single one divide by zero.
    x = builder.emit(op.broadcast_to(reshape(builder, x, (batch, channels, 1, width)), (batch, channels, 2, width)))
    x = slice_axis(builder, resize(builder, x, "NCHW", [2, size], **_options(attrs, x)), 2, 0, 1)
    return change_layout(builder, reshape(builder, x, (batch, channels, size)), "NCW", layout)


def _upsample(axes: int, builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    layout = _layout(attrs, x, axes)
    size = [_scale_extent(attrs, letter, shape(x)[layout.index(letter)]) for letter in _SPACE[axes]]
    methods = {
        "nearest_neighbor": "nearest_neighbor",
        "bilinear": "linear",
        "trilinear": "linear",
        "bicubic": "cubic",
    }
    method = methods[attrs.choice("method", *methods)]
    # Only upsampling3d names its coordinates; the older upsampling has a flag for two of them.
    if axes == 2:
        coordinates = "align_corners" if attrs.flag("align_corners") else "asymmetric"
    else:
        coordinates = attrs.choice("coordinate_transformation_mode", *_COORDINATES)
    options = {"method": method, "coordinate_transformation_mode": coordinates, "cubic_alpha": -0.5}
    return resize(builder, x, layout, size, rounding_method=_rounding(method, coordinates, ""), **options)


def _scale_extent(attrs: Attributes, letter: str, extent: int) -> int:
    size = extent * attrs.number(f"scale_{letter.lower()}", 1)
    # Scales are real numbers of the program, of which damage may make anything.
    if not math.isfinite(size) or not 1 <= round(size) < 2**31:
        raise ModelError(f"an extent of {size} is not supported")
    return round(size)


def _grid_sample(builder: BindingBuilder, attrs: Attributes, x: Any, grid: Any) -> Any:
    """Sample at points; coordinates are Relay's second axis."""
    method = attrs.choice("method", "bilinear", "nearest", "bicubic")
    _layout(attrs, x, 2)
    padding = attrs.choice("padding_mode", "zeros", "border", "reflection")
    call = op.image.grid_sample(
        x, grid, method=method, padding_mode=padding, align_corners=attrs.flag("align_corners", True)
    )
    return builder.emit(call)


TABLE: dict[str, Converter] = {
    "image.resize1d": _resize1d,
    "image.resize2d": functools.partial(_resize, 2),
    "image.resize3d": functools.partial(_resize, 3),
    "nn.upsampling": functools.partial(_upsample, 2),
    "nn.upsampling3d": functools.partial(_upsample, 3),
    "image.grid_sample": _grid_sample,
}
