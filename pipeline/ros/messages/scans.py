"""Scans: points and ranges of ROS as arrays, fitted to a model's input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.errors import InputError

DATATYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8")
"""dtype by number, of `sensor_msgs/PointField` from 1 on."""


def read_points(message: Any) -> np.ndarray:
    """Return a `PointCloud2` as float32 [points, values], the fields in their order."""
    order = ">" if message.is_bigendian else "<"
    try:
        dtypes = [np.dtype(f"{order}{DATATYPES[field.datatype - 1]}") for field in message.fields]
        layout = np.dtype(
            {
                "names": [f"{number}" for number in range(len(dtypes))],
                "formats": [(each, max(1, field.count)) for each, field in zip(dtypes, message.fields, strict=True)],
                "offsets": [int(field.offset) for field in message.fields],
                "itemsize": int(message.point_step),
            }
        )
        height, width, step = int(message.height), int(message.width), int(message.row_step)
        rows = message.data[: height * step].reshape(height, step)[:, : width * layout.itemsize]
        points = np.ascontiguousarray(rows).reshape(-1).view(layout)
        columns = [points[name].astype(np.float32) for name in layout.names or ()]
        return np.concatenate([column.reshape(len(points), -1) for column in columns], axis=1)
    except (IndexError, TypeError, ValueError) as error:
        raise InputError(
            f"a point cloud of {message.width}x{message.height} points of {message.point_step} bytes has "
            f"{message.data.size} bytes: {error}"
        ) from None


def read_ranges(message: Any) -> np.ndarray:
    """Return a `LaserScan` as float32 [rays], or [rays, 2] with intensities."""
    if len(message.intensities) == len(message.ranges) != 0:
        return np.stack([message.ranges, message.intensities], axis=1)
    ranges: np.ndarray = message.ranges
    return ranges


READERS = {"sensor_msgs/msg/PointCloud2": read_points, "sensor_msgs/msg/LaserScan": read_ranges}
"""Reader by type of message."""


def fit(array: np.ndarray, shape: Sequence[int], dtype: str) -> np.ndarray:
    """Return points or rays as a model takes them: of another count, cut or filled up with zeros."""
    if math.prod(shape) == array.size:
        return array.reshape(shape).astype(dtype, copy=False)
    extents = [extent for extent in shape if extent != 1]
    array = array[..., None] if array.ndim < len(extents) else array[..., 0] if array.ndim > len(extents) else array
    fitted = np.zeros(extents, dtype)
    part = tuple(slice(min(a, b)) for a, b in zip(array.shape, extents, strict=True))
    fitted[part] = array[part]
    return fitted.reshape(shape)
