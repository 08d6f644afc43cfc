"""Operators between axes: layouts, and pixel blocks to channels."""

from __future__ import annotations

import re
from typing import Any

from pipeline.errors import ModelError
from pipeline.frontends.relay.attributes import Attributes
from pipeline.frontends.relay.builder import BindingBuilder, shape
from pipeline.frontends.relay.operators.common import Converter, change_layout, reshape, transpose
from pipeline.frontends.relay.operators.convolution import check_layout


def _parse_layout(layout: str) -> dict[str, int]:
    """Return a layout's axes in order, with block sizes: ``NCHW16c`` has c: 16."""
    parts = re.findall(r"(\d*)([A-Za-z])", layout)
    # Nine digits: Python refuses to convert thousands of them, and no block is as large.
    axes = {letter: int(size[:9]) if size else 0 for size, letter in parts}
    # A small letter is a block of the axis with the capital one, which must be there too.
    blocks_fit = all((size > 0) == letter.islower() and letter.upper() in axes for letter, size in axes.items())
    if (
        not axes
        or "".join(size + letter for size, letter in parts) != layout
        or len(axes) < len(parts)
        or not blocks_fit
    ):
        raise ModelError(f"{layout!r} is no layout")
    return axes


def _layout_transform(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    """Merge the source's blocks, reorder axes, split the destination's."""
    have, want = _parse_layout(attrs.text("src_layout")), _parse_layout(attrs.text("dst_layout"))
    order, target = _axis_letters(have), _axis_letters(want)
    if sorted(order) != sorted(target) or len(have) != len(shape(x)):
        raise ModelError(f"a tensor of the shape {shape(x)} does not go from {''.join(have)} to {''.join(want)}")
    # Dictionaries compare without their order, which is what a layout is about.
    if list(have) == list(want) and have == want:
        return x
    x = change_layout(builder, _merge_blocks(builder, x, have), order, target)
    return _split_blocks(builder, x, want)


def _axis_letters(axes: dict[str, int]) -> str:
    return "".join(letter for letter in axes if letter.isupper())


def _merge_blocks(builder: BindingBuilder, x: Any, axes: dict[str, int]) -> Any:
    letters = list(axes)
    if any(size and shape(x)[letters.index(letter)] != size for letter, size in axes.items()):
        raise ModelError(f"the shape {shape(x)} does not have the blocks of {axes}")
    letter_order = [part for letter in _axis_letters(axes) for part in (letter, letter.lower()) if part in axes]
    extents = dict(zip(letters, shape(x), strict=True))
    x = transpose(builder, x, [letters.index(letter) for letter in letter_order])
    return reshape(builder, x, [extents[letter] * extents.get(letter.lower(), 1) for letter in _axis_letters(axes)])


def _split_blocks(builder: BindingBuilder, x: Any, axes: dict[str, int]) -> Any:
    extents: list[int] = []
    letters: list[str] = []
    for letter, extent in zip(_axis_letters(axes), shape(x), strict=True):
        size = axes.get(letter.lower(), 0)
        if size and extent % size:
            raise ModelError(f"the extent {extent} of {letter} does not divide into blocks of {size}")
        letters += [letter, letter.lower()] if size else [letter]
        extents += [extent // size, size] if size else [extent]
    return transpose(builder, reshape(builder, x, extents), [letters.index(letter) for letter in axes])


def _depth_to_space(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    layout, size = _image(attrs, x)
    x = change_layout(builder, x, layout, "NCHW")
    batch, channels, height, width = shape(x)
    if channels % (size * size):
        raise ModelError(f"{channels} channels do not divide into blocks of {size} by {size}")
    remaining_channels = channels // (size * size)
    if attrs.choice("mode", "DCR", "CDR") == "DCR":
        parts, order = (size, size, remaining_channels), [0, 3, 4, 1, 5, 2]
    else:
        parts, order = (remaining_channels, size, size), [0, 1, 4, 2, 5, 3]
    x = transpose(builder, reshape(builder, x, (batch, *parts, height, width)), order)
    x = reshape(builder, x, (batch, remaining_channels, height * size, width * size))
    return change_layout(builder, x, "NCHW", layout)


def _space_to_depth(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    layout, size = _image(attrs, x)
    attrs.choice("mode", "DCR")
    x = change_layout(builder, x, layout, "NCHW")
    batch, channels, height, width = shape(x)
    if height % size or width % size:
        raise ModelError(f"{height} by {width} pixels do not divide into blocks of {size} by {size}")
    x = reshape(builder, x, (batch, channels, height // size, size, width // size, size))
    x = transpose(builder, x, [0, 3, 5, 1, 2, 4])
    x = reshape(builder, x, (batch, channels * size * size, height // size, width // size))
    return change_layout(builder, x, "NCHW", layout)


def _image(attrs: Attributes, x: Any) -> tuple[str, int]:
    if len(shape(x)) != 4:
        raise ModelError(f"expected 4 axes, found the shape {shape(x)}")
    return check_layout("layout", attrs.text("layout", "NCHW"), "NCHW"), attrs.positive("block_size", 1)[0]


TABLE: dict[str, Converter] = {
    "layout_transform": _layout_transform,
    "nn.depth_to_space": _depth_to_space,
    "nn.space_to_depth": _space_to_depth,
}
