"""Relax expressions: operators, shapes, operands, and image axes per layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.ir import Call

from pipeline.system.memory import copy_aligned

FIRST, LAST = "NCHW", "NHWC"
TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)

AXIS = {0: 0, 1: 3, 2: 1, 3: 2}
"""Axis of NHWC that an axis of NCHW is."""


def constant(values: np.ndarray) -> Any:
    """Return a constant; large ones return their memory to the system."""
    # Aligned, since devices use parameters where they lie only then.
    return relax.const(tvm.runtime.from_dlpack(copy_aligned(values)))


def name_of(value: Any) -> str:
    """Return a call's operator name without ``relax.``."""
    return str(value.op.name).removeprefix("relax.") if isinstance(value, Call) and hasattr(value.op, "name") else ""


def layout_of(value: Any) -> str:
    """Return an expression's image layout, or nothing."""
    attrs = value.attrs if isinstance(value, Call) else None
    return next((str(getattr(attrs, name)) for name in ("data_layout", "layout") if hasattr(attrs, name)), "")


def is_image(ty: Any) -> bool:
    """Test for a tensor type of batch, channels, height, width."""
    return isinstance(ty, relax.TensorType) and ty.ndim == 4


def is_static(*values: Any) -> bool:
    """Test if tensor shapes are static."""
    return all(
        isinstance(value.ty, relax.TensorType)
        and value.ty.shape is not None
        and all(isinstance(extent, tirx.IntImm) for extent in value.ty.shape)
        for value in values
    )


def extents(ty: Any) -> tuple[int, ...]:
    """Return the shape of a type."""
    return tuple(int(extent) for extent in ty.shape)


def pad_channels(builder: Any, data: Any, groups: int, padding: int) -> Any:
    """Put zeros behind the channels of each group, which are last."""
    *outer_shape, channels = extents(data.ty)
    if not padding:
        return data
    if groups > 1:
        data = builder.emit(relax.op.reshape(data, (*outer_shape, groups, channels // groups)))
    widths = [0, 0] * (data.ty.ndim - 1) + [0, padding]
    data = builder.emit(relax.op.nn.pad(data, widths, "constant", 0))
    if groups > 1:
        data = builder.emit(relax.op.reshape(data, (*outer_shape, channels + groups * padding)))
    return data
