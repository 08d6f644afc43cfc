"""Types of convolutions and poolings, a hundred times as fast as TVM's.

TVM derives maps between layouts for each call, also between equal ones, which takes a millisecond.
"""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.ir import Op, register_op_attr
from tvm.tirx import IntImm

from pipeline.tvm.objects import items

_ATTRIBUTE = "FInferType"
_AXES = {1: "W", 2: "HW", 3: "DHW"}


def _extents(ty: Any, rank: int) -> list[int] | None:
    """Return a plain tensor's extents, if all are numbers."""
    shape = ty.shape if isinstance(ty, relax.TensorType) and ty.vdevice is None else None
    extents = items(shape.values) if isinstance(shape, relax.ShapeExpr) else []
    is_known = len(extents) == rank and all(isinstance(extent, IntImm) for extent in extents)
    return [extent.value for extent in extents] if is_known else None


def _slide(attributes: Any, extents: list[int], window: list[int]) -> list[int]:
    """Return how often a window fits into padded extents."""
    padding, strides, dilation = (items(part) for part in (attributes.padding, attributes.strides, attributes.dilation))
    rank = len(extents)
    axes = zip(extents, padding[:rank], padding[rank:], window, dilation, strides, strict=True)
    return [
        (extent + before + after - step * (size - 1) - 1) // stride + 1
        for extent, before, after, size, step, stride in axes
    ]


def _convolution(call: Any, rank: int) -> Any:
    attributes = call.attrs
    data, weights = (argument.ty for argument in items(call.args))
    layouts = attributes.data_layout, attributes.out_layout, attributes.kernel_layout
    if layouts != (f"NC{_AXES[rank]}", f"NC{_AXES[rank]}", f"OI{_AXES[rank]}"):
        return None
    extents, window = _extents(data, rank + 2), _extents(weights, rank + 2)
    dtype = attributes.out_dtype or (data.dtype if data.dtype == weights.dtype else None)
    if extents is None or window is None or dtype is None:
        return None
    groups = int(attributes.groups)
    # TVM says what is wrong.
    if extents[1] != window[1] * groups or window[0] % groups:
        return None
    return relax.TensorType([extents[0], window[0], *_slide(attributes, extents[2:], window[2:])], dtype)


def _pooling(call: Any, rank: int) -> Any:
    attributes, data = call.attrs, call.args[0].ty
    layout = f"NC{_AXES[rank]}"
    if attributes.ceil_mode or (attributes.layout, attributes.out_layout) != (layout, layout):
        return None
    if (extents := _extents(data, rank + 2)) is None or data.dtype is None:
        return None
    return relax.TensorType([*extents[:2], *_slide(attributes, extents[2:], items(attributes.pool_size))], data.dtype)


def _install(name: str, infer: Any, rank: int) -> None:
    infer_generally = Op.get(name).get_attr(_ATTRIBUTE)

    def infer_type(call: Any, builder: Any) -> Any:
        return infer(call, rank) or infer_generally(call, builder)

    register_op_attr(name, _ATTRIBUTE, infer_type, 11)


for _rank in _AXES:
    _install(f"relax.nn.conv{_rank}d", _convolution, _rank)
    _install(f"relax.nn.max_pool{_rank}d", _pooling, _rank)
    _install(f"relax.nn.avg_pool{_rank}d", _pooling, _rank)
