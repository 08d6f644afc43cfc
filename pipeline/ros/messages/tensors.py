"""Tensors of ROS: multidimensional `std_msgs` arrays, shaped by layout."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.errors import InputError
from pipeline.ros.messages.types import create_message

TYPES = {
    "float32": "std_msgs/msg/Float32MultiArray",
    "float64": "std_msgs/msg/Float64MultiArray",
    "int8": "std_msgs/msg/Int8MultiArray",
    "int16": "std_msgs/msg/Int16MultiArray",
    "int32": "std_msgs/msg/Int32MultiArray",
    "int64": "std_msgs/msg/Int64MultiArray",
    "uint8": "std_msgs/msg/UInt8MultiArray",
    "uint16": "std_msgs/msg/UInt16MultiArray",
    "uint32": "std_msgs/msg/UInt32MultiArray",
    "uint64": "std_msgs/msg/UInt64MultiArray",
}
"""dtype -> message type; floats of 16 bits travel as 32."""

DTYPES = {kind: dtype for dtype, kind in TYPES.items()}


def kind(dtype: str) -> str:
    """Return the message type for arrays of `dtype`, or raise `InputError`."""
    # std_msgs has neither; the next wider type holds the same values.
    carrier = {"float16": "float32", "bool": "uint8"}.get(dtype, dtype)
    if carrier not in TYPES:
        raise InputError(f"ROS has no message for arrays of {dtype}; there are those of {', '.join(TYPES)}")
    return TYPES[carrier]


def message(array: np.ndarray) -> Any:
    """Return `array` as a message."""
    name = kind(str(array.dtype))
    # The stride of a dimension counts the values in it and all behind it (std_msgs/MultiArrayLayout).
    strides = [int(np.prod(array.shape[axis:])) for axis in range(array.ndim)]
    extents = [
        create_message("std_msgs/msg/MultiArrayDimension", f"d{axis}", extent, stride)
        for axis, (extent, stride) in enumerate(zip(array.shape, strides, strict=True))
    ]
    layout = create_message("std_msgs/msg/MultiArrayLayout", extents, 0)
    return create_message(name, layout, np.ascontiguousarray(array, DTYPES[name]).reshape(-1))


def array(message: Any, name: str) -> np.ndarray:
    """Return the array in a message of type `name`; `InputError` if layout and data contradict each other."""
    data = np.asarray(message.data, DTYPES[name])
    begin, shape = int(message.layout.data_offset), [int(extent.size) for extent in message.layout.dim]
    # Without dimensions, as many publishers leave it, the data are one row.
    size = int(np.prod(shape)) if shape else len(data) - begin
    # Sizes are unsigned in the message, so that too large is the one way to be wrong.
    if begin + size > len(data):
        raise InputError(f"an array of shape {shape} from {begin} on has {len(data)} values")
    return data[begin : begin + size].reshape(shape or [-1])
