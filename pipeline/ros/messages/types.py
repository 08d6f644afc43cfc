"""Message types: ROS 2 definitions for the node's reading and writing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from pipeline.errors import InputError, near
from pipeline.system.optional import require

DTYPES = {
    "byte": "u1", "char": "u1", "uint8": "u1", "int8": "i1", "uint16": "u2", "int16": "i2",
    "bool": "?", "uint32": "u4", "int32": "i4", "uint64": "u8", "int64": "i8", "float32": "f4", "float64": "f8",
}  # fmt: skip
"""Primitive type of ROS -> NumPy's, without the order of bytes."""

_STAMPED = "std_msgs/msg/Header header"
_POINT = "float64 x, float64 y"
_LAYOUT = "std_msgs/msg/MultiArrayLayout layout"

DEFINITIONS = {
    "builtin_interfaces/msg/Time": "int32 sec, uint32 nanosec",
    "std_msgs/msg/Header": "builtin_interfaces/msg/Time stamp, string frame_id",
    "sensor_msgs/msg/Image": f"{_STAMPED}, uint32 height, uint32 width, string encoding, uint8 is_bigendian, "
    "uint32 step, uint8[] data",
    "sensor_msgs/msg/CompressedImage": f"{_STAMPED}, string format, uint8[] data",
    "sensor_msgs/msg/RegionOfInterest": "uint32 x_offset, uint32 y_offset, uint32 height, uint32 width, "
    "bool do_rectify",
    "sensor_msgs/msg/CameraInfo": f"{_STAMPED}, uint32 height, uint32 width, string distortion_model, float64[] d, "
    "float64[9] k, float64[9] r, float64[12] p, uint32 binning_x, uint32 binning_y, "
    "sensor_msgs/msg/RegionOfInterest roi",
    "sensor_msgs/msg/PointField": "string name, uint32 offset, uint8 datatype, uint32 count",
    "sensor_msgs/msg/PointCloud2": f"{_STAMPED}, uint32 height, uint32 width, sensor_msgs/msg/PointField[] fields, "
    "bool is_bigendian, uint32 point_step, uint32 row_step, uint8[] data, bool is_dense",
    "sensor_msgs/msg/LaserScan": f"{_STAMPED}, float32 angle_min, float32 angle_max, float32 angle_increment, "
    "float32 time_increment, float32 scan_time, float32 range_min, float32 range_max, float32[] ranges, "
    "float32[] intensities",
    "rosgraph_msgs/msg/Clock": "builtin_interfaces/msg/Time clock",
    "statistics_msgs/msg/StatisticDataPoint": "uint8 data_type, float64 data",
    "statistics_msgs/msg/MetricsMessage": "string measurement_source_name, string metrics_source, string unit, "
    "builtin_interfaces/msg/Time window_start, builtin_interfaces/msg/Time window_stop, "
    "statistics_msgs/msg/StatisticDataPoint[] statistics",
    "std_msgs/msg/String": "string data",
    "geometry_msgs/msg/Point": f"{_POINT}, float64 z",
    "geometry_msgs/msg/Quaternion": f"{_POINT}, float64 z, float64 w",
    "geometry_msgs/msg/Pose": "geometry_msgs/msg/Point position, geometry_msgs/msg/Quaternion orientation",
    "geometry_msgs/msg/PoseWithCovariance": "geometry_msgs/msg/Pose pose, float64[36] covariance",
    "vision_msgs/msg/ObjectHypothesis": "string class_id, float64 score",
    "vision_msgs/msg/ObjectHypothesisWithPose": "vision_msgs/msg/ObjectHypothesis hypothesis, "
    "geometry_msgs/msg/PoseWithCovariance pose",
    "vision_msgs/msg/Classification": f"{_STAMPED}, vision_msgs/msg/ObjectHypothesis[] results",
    "vision_msgs/msg/Point2D": _POINT,
    "vision_msgs/msg/Pose2D": "vision_msgs/msg/Point2D position, float64 theta",
    "vision_msgs/msg/BoundingBox2D": "vision_msgs/msg/Pose2D center, float64 size_x, float64 size_y",
    "vision_msgs/msg/Detection2D": f"{_STAMPED}, vision_msgs/msg/ObjectHypothesisWithPose[] results, "
    "vision_msgs/msg/BoundingBox2D bbox, string id",
    "vision_msgs/msg/Detection2DArray": f"{_STAMPED}, vision_msgs/msg/Detection2D[] detections",
    "diagnostic_msgs/msg/KeyValue": "string key, string value",
    "diagnostic_msgs/msg/DiagnosticStatus": "byte level, string name, string message, string hardware_id, "
    "diagnostic_msgs/msg/KeyValue[] values",
    "diagnostic_msgs/msg/DiagnosticArray": f"{_STAMPED}, diagnostic_msgs/msg/DiagnosticStatus[] status",
    "std_msgs/msg/MultiArrayDimension": "string label, uint32 size, uint32 stride",
    "std_msgs/msg/MultiArrayLayout": "std_msgs/msg/MultiArrayDimension[] dim, uint32 data_offset",
    **{
        f"std_msgs/msg/{name}MultiArray": f"{_LAYOUT}, {name.lower()}[] data"
        for name in ("Float32", "Float64", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
    },
    # A tensor with a header, which the arrays of std_msgs lack: for receivers who have this definition.
    "soc_pipeline_msgs/msg/Tensor": f"{_STAMPED}, string name, string dtype, uint64[] shape, uint8[] data",
}
"""Name -> fields, as in the distributions from Humble on."""


@dataclass(frozen=True)
class MessageField:
    """One field of a message."""

    name: str
    kind: str
    """A key of `DTYPES` or of `DEFINITIONS`, or ``"string"``."""
    count: int | None = None
    """Number of values: None for one value, 0 for a sequence, else the length of an array."""


@cache
def fields(name: str) -> tuple[MessageField, ...]:
    """Return the fields of a type, or raise `InputError`."""
    if name not in DEFINITIONS:
        remedy = near(name, DEFINITIONS) or f"; there are {', '.join(sorted(DEFINITIONS))}"
        raise InputError(f"no message type {name!r} is known{remedy}")
    # In the order of the definition, which is that of the bytes.
    return tuple(_field(*text.split()) for text in DEFINITIONS[name].split(", "))


def _field(kind: str, name: str) -> MessageField:
    # `float64[36]` is an array, `uint8[]` a sequence, and without brackets it is one value.
    base, bracket, count = kind.rstrip("]").partition("[")
    return MessageField(name, base, int(count or 0) if bracket else None)


@cache
def message_store() -> Any:
    """Return rosbags' types for reading, writing and hashing, or raise `MissingExtra`."""
    # Not one of its stores for distributions: loading hundreds of types takes as long as all else that a node imports.
    store = require("rosbags.typesys.store", "ros2", "messages of ROS 2").Typestore()
    store.register({name: ([], [(field.name, _description(field)) for field in fields(name)]) for name in DEFINITIONS})
    return store


def create_message(name: str, *values: Any) -> Any:
    """Create a message of type `name` with field `values` in order."""
    return message_store().types[name](*values)


def _description(field: MessageField) -> Any:
    """Return a field as rosbags describes it."""
    kinds = require("rosbags.interfaces", "ros2", "messages of ROS 2").Nodetype
    element = (kinds.NAME, field.kind) if field.kind in DEFINITIONS else (kinds.BASE, (field.kind, 0))
    if field.count is None:
        return element
    return (kinds.ARRAY, (element, field.count)) if field.count else (kinds.SEQUENCE, (element, 0))
