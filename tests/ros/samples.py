"""Messages for tests: of our classes and of those of rosbags, with the same random values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline.io.ros.messages import DEFINITIONS, DTYPES, TYPES, Field, fields

ENCODING = "rgb8"


def store() -> Any:
    """Return the types of rosbags, with those of vision_msgs, and the project's own, which it lacks."""
    typesys = pytest.importorskip("rosbags.typesys")
    made = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)
    missing: dict[str, Any] = {}
    for name in DEFINITIONS:
        if name not in made.fielddefs:
            missing |= typesys.get_types_from_msg("\n".join(map(line, fields(name))), name)
    made.register(missing)
    return made


def line(field: Field) -> str:
    """Return the line of a field in a .msg file."""
    count = "" if field.count is None else f"[{field.count or ''}]"
    return f"{field.kind}{count} {field.name}"


def filled(name: str, types: Any, seed: np.random.Generator) -> Any:
    """Return a message with random values; the same for the same seed, whatever the classes."""
    return types[name](**{each.name: _value(each, types, seed) for each in fields(name)})


def _value(field: Field, types: Any, seed: np.random.Generator) -> Any:
    count = int(seed.integers(0, 5)) if field.count == 0 else field.count
    if field.kind in DTYPES:
        values = np.frombuffer(seed.bytes(8 * (count or 1)), DTYPES[field.kind])[: 1 if count is None else count]
        values = np.nan_to_num(values) if values.dtype.kind == "f" else values
        if field.kind == "byte":
            values = values & 127  # rosbags takes it as signed
        return values.item() if count is None else values.copy()
    several = [_one(field.kind, types, seed) for _ in range(1 if count is None else count)]
    return several[0] if count is None else several


def _one(kind: str, types: Any, seed: np.random.Generator) -> Any:
    if kind == "string":
        return "".join(map(chr, seed.integers(32, 400, seed.integers(0, 9))))
    return filled(kind, types, seed)


def same(left: Any, right: Any, name: str) -> bool:
    """Whether two messages have the same values."""
    for field in fields(name):
        one, other = getattr(left, field.name), getattr(right, field.name)
        if field.kind in DTYPES or field.kind == "string":
            equal = bool(np.array_equal(one, other))
        elif field.count is None:
            equal = same(one, other, field.kind)
        else:
            equal = len(one) == len(other) and all(same(a, b, field.kind) for a, b in zip(one, other, strict=True))
        if not equal:
            return False
    return True


def picture(array: np.ndarray, stamp: int, frame_id: str = "camera", encoding: str = ENCODING) -> Any:
    """Return an image of ours."""
    moment = TYPES["builtin_interfaces/msg/Time"](stamp // 10**9, stamp % 10**9)
    header = TYPES["std_msgs/msg/Header"](moment, frame_id)
    height, width = array.shape[:2]
    return TYPES["sensor_msgs/msg/Image"](header, height, width, encoding, 0, array.nbytes // height, array.reshape(-1))
