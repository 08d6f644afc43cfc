"""Pooling: the largest value of each window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from boards.vta.compiler.layers import MaxPool
from boards.vta.lowering.values import Copy, Sums, Tensor, Unsupported, sums
from pipeline.errors import BuildError

if TYPE_CHECKING:
    from boards.vta.lowering.reader import Reader


def max_pool2d(reader: Reader, call: Any) -> Tensor | Sums:
    """Return the pooled tensor, in the units that it had."""
    attrs, found = call.attrs, reader.known(call.args[0])
    source, exponent = (found, 0.0) if isinstance(found, Tensor) else reader.scaled(call.args[0])
    if str(attrs.layout) != "NCHW" or any(int(each) != 1 for each in attrs.dilation):
        raise Unsupported("it pools with holes, or in another layout")
    down, across, *pads = (int(each) for each in (*attrs.strides, *attrs.padding))
    kernel = (int(attrs.pool_size[0]), int(attrs.pool_size[1]))
    top, left, bottom, right = pads
    try:
        layer = MaxPool(source.shape, kernel, (down, across), (top, left, bottom, right))
    except BuildError as error:
        raise Unsupported(str(error)) from None
    extents = (1, *layer.outputs)
    if extents != tuple(int(each) for each in call.ty.shape):
        raise Unsupported("its last windows reach beyond the padding")
    made = reader.append(layer, (source,), extents, source.zero)
    return made if isinstance(found, Tensor) else sums(Copy(made), made.shape[0], extents, exponent)
