"""Convolutions and transposed convolutions, in any order of their axes."""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import relax

from pipeline.errors import ModelError
from pipeline.frontends.relay.attributes import Attributes
from pipeline.frontends.relay.builder import BindingBuilder, dtype, shape
from pipeline.frontends.relay.operators.common import Converter, change_layout, reshape

op = relax.op

_SPACE = {1: "W", 2: "HW", 3: "DHW"}


def check_layout(name: str, layout: str, letters: str) -> str:
    """Return a layout with each of `letters` once."""
    if sorted(layout) != sorted(letters):
        raise ModelError(f"{name} {layout!r} is not supported; expected the letters of {letters!r} in some order")
    return layout


def convolve(  # noqa: PLR0913, PLR0917 - all of a convolution
    builder: BindingBuilder, attrs: Attributes, x: Any, weight: Any, axes: int, default: str = ""
) -> Any:
    """Convert a convolution over `axes` axes; `default` is the result's dtype."""
    space = _SPACE[axes]
    layout = check_layout("data layout", attrs.text("data_layout", f"NC{space}"), f"NC{space}")
    kernel_layout = check_layout("kernel layout", attrs.text("kernel_layout", f"OI{space}"), f"OI{space}")
    groups = attrs.integer("groups", 1)
    # Blocked layouts, such as NCHW16c, have more axes: they are the compiler's own, not a model's.
    for tensor in (x, weight):
        if len(shape(tensor)) != axes + 2:
            raise ModelError(f"expected {axes + 2} axes, found the shape {shape(tensor)}")
    # First: from here on the weight has the order that Relax knows, with a multiplier among its outputs.
    weight = _depthwise(builder, weight, kernel_layout, shape(x)[layout.index("C")], groups)
    if layout == f"NC{space}":
        # The usual order lets a batch norm behind it vanish in the weights.
        weight, kernel_layout = change_layout(builder, weight, kernel_layout, f"OI{space}"), f"OI{space}"
    operator = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}[axes]
    options = _options(attrs, axes, dtype(x), default)
    return builder.emit(operator(x, weight, data_layout=layout, kernel_layout=kernel_layout, **options))


def _options(attrs: Attributes, axes: int, data_dtype: str, default: str) -> dict[str, Any]:
    """Return the arguments that both kinds of convolution take."""
    out_dtype = attrs.dtype("out_dtype", default or data_dtype)
    return {
        "strides": attrs.positive("strides", axes),
        "padding": attrs.padding(axes),
        "dilation": attrs.positive("dilation", axes),
        "groups": attrs.integer("groups", 1),
        "out_dtype": None if out_dtype == data_dtype else out_dtype,
    }


def _depthwise(builder: BindingBuilder, weight: Any, layout: str, channels: int, groups: int) -> Any:
    """Return depthwise weights from (channels, multiplier) in Relax's shape."""
    extents = shape(weight)
    output_channels, input_channels = (extents[layout.index(letter)] for letter in "OI")
    if not groups == channels == output_channels or input_channels == 1:
        return weight
    space_letters = [letter for letter in layout if letter not in "OI"]
    last = change_layout(builder, weight, layout, "".join([*space_letters, "O", "I"]))
    reshaped_weight = reshape(
        builder,
        last,
        (*(extents[layout.index(letter)] for letter in space_letters), output_channels * input_channels, 1),
    )
    return change_layout(builder, reshaped_weight, "".join([*space_letters, "O", "I"]), layout)


def transpose_convolve(  # noqa: PLR0913, PLR0917 - all of a convolution
    builder: BindingBuilder, attrs: Attributes, x: Any, weight: Any, axes: int, default: str = ""
) -> Any:
    """Convert a transposed convolution over `axes` axes.

    Relax has kernels for one order of the axes only.
    """
    space = _SPACE[axes]
    layout = check_layout("data layout", attrs.text("data_layout", f"NC{space}"), f"NC{space}")
    if len(shape(x)) != axes + 2 or len(shape(weight)) != axes + 2:
        raise ModelError(f"expected {axes + 2} axes, found the shapes {shape(x)} and {shape(weight)}")
    channels = shape(x)[layout.index("C")]
    x = change_layout(builder, x, layout, f"NC{space}")
    weight = change_layout(builder, weight, _kernel_layout(attrs, axes, channels, shape(weight)), f"IO{space}")
    operator = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose, 3: op.nn.conv3d_transpose}[axes]
    output_padding = attrs.integers("output_padding", [0] * axes)
    call = operator(x, weight, output_padding=output_padding, **_options(attrs, axes, dtype(x), default))
    return change_layout(builder, builder.emit(call), f"NC{space}", layout)


def _kernel_layout(attrs: Attributes, axes: int, channels: int, extents: tuple[int, ...]) -> str:
    """Return the order of the weight's axes.

    Relay writes ``OI`` for weights of (inputs, outputs) with one and three axes, and so did its old versions with
    two; the shape tells which is meant wherever the numbers of channels differ.
    """
    space = _SPACE[axes]
    layout = check_layout("kernel layout", attrs.text("kernel_layout", f"IO{space}"), f"IO{space}")
    is_misnamed = layout == f"OI{space}" and (axes != 2 or (extents[0] == channels != extents[1]))
    return f"IO{space}" if is_misnamed else layout


TABLE: dict[str, Converter] = {
    **{f"nn.conv{axes}d": partial(convolve, axes=axes) for axes in _SPACE},
    **{f"nn.conv{axes}d_transpose": partial(transpose_convolve, axes=axes) for axes in _SPACE},
}
