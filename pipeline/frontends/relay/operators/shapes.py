"""Shape operators: reshape by Relay's codes, concatenation, splits, padding, repetition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from pipeline.errors import ModelError
from pipeline.frontends.relay.attributes import Attributes
from pipeline.frontends.relay.builder import BindingBuilder, axis, constant_values, fields, shape
from pipeline.frontends.relay.operators.common import Converter, reshape, transpose
from pipeline.frontends.relay.scalars import are_equal_shapes, numbers, product, quotient

op = relax.op

# Each part is a variable of its own; models split into heads or channels, of which there are hundreds.
_MOST_PARTS = 2**14


def decode_shape(extents: Sequence[Any], codes: Sequence[int], zero_is_zero: bool = False) -> tuple[Any, ...]:
    """Return the shape of Relay's codes.

    Raises `ModelError` if they do not fit. A code is an extent; 0 keeps one (`zero_is_zero`: is an extent, too), -1
    takes what is left over, -2 keeps all that follow, -3 merges two, and -4 splits one into the two that follow, of
    which one may be -1. The operand's `extents` may be symbolic.
    """
    complaint = ModelError(f"the shape {tuple(extents)} does not become {list(codes)}")
    remaining_extents, remaining_codes = list(extents), list(codes)
    result: list[Any] = []
    try:
        while remaining_codes:
            code = remaining_codes.pop(0)
            if code > 0 or code == -1 or (code == 0 and zero_is_zero):
                result.append(code)
                # A code for an extent uses up one of the operand's, if there is one left.
                remaining_extents[:1] = []
            elif code == 0:
                result.append(remaining_extents.pop(0))
            elif code == -2:
                result += remaining_extents
                remaining_extents = []
            elif code == -3:
                result.append(remaining_extents.pop(0) * remaining_extents.pop(0))
            elif code == -4:
                result += _split(remaining_extents.pop(0), remaining_codes.pop(0), remaining_codes.pop(0))
            else:
                raise complaint
    except (IndexError, ZeroDivisionError):
        raise complaint from None
    return _fill_gap(result, product(extents), complaint)


def _split(extent: Any, first: int, second: int) -> list[Any]:
    first = extent // second if first == -1 else first
    return [first, extent // first if second == -1 else second]


def _fill_gap(result: list[Any], total: Any, complaint: ModelError) -> tuple[Any, ...]:
    """Replace -1 by the remaining extent."""
    # Only numbers are looked for, since a comparison with what is symbolic is no truth value.
    gaps = [position for position, extent in enumerate(result) if isinstance(extent, int) and extent == -1]
    if len(gaps) == 1:
        (gap,) = gaps
        extent = quotient(total, product(result[:gap] + result[gap + 1 :]))
        if extent is None:
            raise complaint
        result[gap] = extent
    if not are_equal_shapes([product(result)], [total]) or min(numbers(result), default=1) < 1:
        raise complaint
    return tuple(result)


def _reshape(builder: BindingBuilder, attrs: Attributes, x: Any, target: Any = None) -> Any:
    if target is None:
        codes = attrs.integers("newshape", []) if attrs.get("newshape") is not None else attrs.integers("shape", [])
    else:
        codes = [int(code) for code in constant_values(target, "the new shape").reshape(-1)]
    return reshape(builder, x, decode_shape(shape(x), codes, attrs.flag("allowzero")))


def _reshape_like(builder: BindingBuilder, attrs: Attributes, x: Any, like: Any) -> Any:
    ranges = []
    for side, tensor in (("lhs", x), ("rhs", like)):
        rank = len(shape(tensor))
        start = attrs.integer(f"{side}_begin", 0)
        # A missing end is that of the shape.
        end = attrs.integer(f"{side}_end", rank) if attrs.has(f"{side}_end") else rank
        ranges.append(slice(start, end).indices(rank)[:2])
    (start, end), (first, last) = ranges
    target = (*shape(x)[:start], *shape(like)[first:last], *shape(x)[end:])
    return reshape(builder, x, decode_shape(shape(x), target))


def _flatten(builder: BindingBuilder, _: Attributes, x: Any) -> Any:
    return reshape(builder, x, (shape(x)[0], product(shape(x)[1:])) if shape(x) else (1, 1))


def _squeeze(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    named_axes = {axis(x, number) for number in attrs.integers("axis", [])}
    if any(shape(x)[number] != 1 for number in named_axes):
        raise ModelError(f"the shape {shape(x)} cannot lose the axes {sorted(named_axes)}")
    removed_axes = (
        named_axes if attrs.has("axis") else {number for number, extent in enumerate(shape(x)) if extent == 1}
    )
    return reshape(builder, x, [extent for number, extent in enumerate(shape(x)) if number not in removed_axes])


def _expand_dims(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    number, count = attrs.integer("axis"), attrs.integer("num_newaxis", 1)
    rank = len(shape(x))
    if not -rank - 1 <= number <= rank or not 0 <= count <= 16:
        raise ModelError(f"{count} axes cannot be put at {number} of the shape {shape(x)}")
    number %= rank + 1
    return reshape(builder, x, (*shape(x)[:number], *[1] * count, *shape(x)[number:]))


def _transpose(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    axes = attrs.integers("axes", []) if attrs.has("axes") else []
    # No axes reverse the order, as in NumPy.
    order = [axis(x, number) for number in axes] or list(range(len(shape(x))))[::-1]
    if sorted(order) != list(range(len(shape(x)))):
        raise ModelError(f"axes={axes} is no order of the axes of the shape {shape(x)}")
    return transpose(builder, x, order)


def _broadcast_to(builder: BindingBuilder, attrs: Attributes, x: Any, target: Any = None) -> Any:
    # Read and ignored: a broadcast keeps the dtype of its operand.
    attrs.get("dtype")
    extents = attrs.integers("shape") if target is None else constant_values(target, "the shape").reshape(-1).tolist()
    return builder.emit(op.broadcast_to(x, tuple(extents)))


def _broadcast_to_like(builder: BindingBuilder, _: Attributes, x: Any, like: Any) -> Any:
    return builder.emit(op.broadcast_to(x, shape(like)))


def _concatenate(builder: BindingBuilder, attrs: Attributes, tensors: Any) -> Any:
    parts = fields(tensors)
    return builder.emit(op.concat(list(parts), axis=axis(parts[0], attrs.integer("axis", 0))))


def _stack(builder: BindingBuilder, attrs: Attributes, tensors: Any) -> Any:
    """Stack as a concatenation, fusible by the compiler."""
    parts, number = fields(tensors), attrs.integer("axis", 0)
    rank = len(shape(parts[0]))
    if not -rank - 1 <= number <= rank or len({shape(part) for part in parts}) > 1:
        raise ModelError(f"tensors of the shapes {[shape(part) for part in parts]} do not stack at axis {number}")
    number %= rank + 1
    extents = (*shape(parts[0])[:number], 1, *shape(parts[0])[number:])
    return builder.emit(op.concat([reshape(builder, part, extents) for part in parts], axis=number))


def _split_parts(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    number = axis(x, attrs.integer("axis", 0))
    extent = shape(x)[number]
    sections = attrs.get("indices_or_sections")
    # A number of equal parts; a list holds the positions to split at.
    if isinstance(sections, int):
        if not 1 <= sections <= _MOST_PARTS or extent % sections:
            raise ModelError(f"the extent {extent} does not divide into {sections} parts")
        edges = list(range(0, extent + 1, extent // sections))
    else:
        edges = [0, *attrs.integers("indices_or_sections"), extent]
    if edges != sorted(set(edges)):
        raise ModelError(f"the extent {extent} cannot be split at {edges[1:-1]}")
    # One part is the operand, for which Relax has no split.
    if len(edges) == 2:
        return (x,)
    return builder.emit(op.split(x, edges[1:-1], axis=number))


def _tile(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    return builder.emit(op.tile(x, attrs.integers("reps")))


def _repeat(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    number = axis(x, attrs.integer("axis")) if attrs.has("axis") else None
    return builder.emit(op.repeat(x, attrs.positive("repeats", 1)[0], number))


def _reverse(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    return builder.emit(op.flip(x, axis(x, attrs.integer("axis"))))


def _widths(attrs: Attributes, x: Any) -> list[tuple[int, int]]:
    attribute = attrs.get("pad_width")
    widths = np.array(attribute if isinstance(attribute, list) else [], dtype=object).reshape(-1).tolist()
    if len(widths) != 2 * len(shape(x)) or not all(isinstance(width, int) and width >= 0 for width in widths):
        raise ModelError(f"pad_width={attribute!r} does not fit the shape {shape(x)}; expected two numbers per axis")
    return list(zip(widths[::2], widths[1::2], strict=True))


def _pad(builder: BindingBuilder, attrs: Attributes, x: Any, value: Any = None) -> Any:
    mode = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}[
        attrs.choice("pad_mode", "constant", "edge", "reflect")
    ]
    fill = (
        attrs.number("pad_value", 0.0) if value is None else float(constant_values(value, "the padding").reshape(-1)[0])
    )
    widths = [width for pair in _widths(attrs, x) for width in pair]
    return builder.emit(op.nn.pad(x, widths, pad_mode=mode, pad_value=fill))


def _mirror_pad(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    """Pad by reflection; ``SYMMETRIC`` repeats the border itself."""
    mode = attrs.choice("mode", "SYMMETRIC", "REFLECT")
    for number, pair in enumerate(_widths(attrs, x)):
        extent = shape(x)[number]
        # More is asked for than lies at the other side of the border.
        if max(pair) > extent - (mode == "REFLECT"):
            raise ModelError(f"the padding {pair} is wider than the extent {extent}")
        if any(pair):
            positions = np.pad(np.arange(extent), pair, mode=mode.lower())  # type: ignore[call-overload]
            x = builder.emit(op.take(x, builder.constant(positions, "int64"), axis=number))
    return x


TABLE: dict[str, Converter] = {
    "reshape": _reshape,
    "dyn.reshape": _reshape,
    "reshape_like": _reshape_like,
    "nn.batch_flatten": _flatten,
    "squeeze": _squeeze,
    "expand_dims": _expand_dims,
    "transpose": _transpose,
    "broadcast_to": _broadcast_to,
    "dyn.broadcast_to": _broadcast_to,
    "broadcast_to_like": _broadcast_to_like,
    "concatenate": _concatenate,
    "stack": _stack,
    "split": _split_parts,
    "tile": _tile,
    "repeat": _repeat,
    "reverse": _reverse,
    "nn.pad": _pad,
    "nn.mirror_pad": _mirror_pad,
}
