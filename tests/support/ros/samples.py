"""Messages for tests: of our classes and of those of rosbags, with the same random values."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from pipeline.ros.messages.types import DEFINITIONS, DTYPES, MessageField, create_message, fields

ENCODING = "rgb8"


@cache
def store() -> Any:
    """Return rosbags' own types of a distribution, with those of vision_msgs, and the project's own, which it lacks."""
    typesys = pytest.importorskip("rosbags.typesys")
    types = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)
    missing: dict[str, Any] = {}
    for name in DEFINITIONS:
        if name not in types.fielddefs:
            missing |= typesys.get_types_from_msg("\n".join(map(line, fields(name))), name)
    types.register(missing)
    return types


def line(field: MessageField) -> str:
    """Return the line of a field in a .msg file."""
    count = "" if field.count is None else f"[{field.count or ''}]"
    return f"{field.kind}{count} {field.name}"


def random_message(name: str, types: Any, seed: np.random.Generator, count: int | None = None) -> Any:
    """Return a message with random values, or of so many where the type leaves that open.

    It is the same for the same seed, whatever the classes.
    """
    return types[name](**{field.name: _value(field, types, seed, count) for field in fields(name)})


def _value(field: MessageField, types: Any, seed: np.random.Generator, length: int | None) -> Any:
    count = field.count
    if count == 0:
        count = int(seed.integers(0, 5)) if length is None else length
    if field.kind in DTYPES:
        values = np.frombuffer(seed.bytes(8 * (count or 1)), DTYPES[field.kind])[: 1 if count is None else count]
        values = np.nan_to_num(values) if values.dtype.kind == "f" else values
        if field.kind == "byte":
            values = values & 127  # rosbags takes it as signed
        return values.item() if count is None else values.copy()
    elements = [_element(field.kind, types, seed, length) for _ in range(1 if count is None else count)]
    return elements[0] if count is None else elements


def _element(kind: str, types: Any, seed: np.random.Generator, length: int | None) -> Any:
    if kind == "string":
        return "".join(map(chr, seed.integers(32, 400, seed.integers(0, 9))))
    # Deeper sequences stay short, or a message would grow with the power of its depth.
    return random_message(kind, types, seed, length and 2)


def same(left: Any, right: Any, name: str) -> bool:
    """Whether two messages have the same values."""
    for field in fields(name):
        value, other_value = getattr(left, field.name), getattr(right, field.name)
        if field.kind in DTYPES or field.kind == "string":
            equal = bool(np.array_equal(value, other_value))
        elif field.count is None:
            equal = same(value, other_value, field.kind)
        else:
            equal = len(value) == len(other_value) and all(
                same(a, b, field.kind) for a, b in zip(value, other_value, strict=True)
            )
        if not equal:
            return False
    return True


def picture(array: np.ndarray, stamp: int, frame_id: str = "camera", encoding: str = ENCODING) -> Any:
    """Return an image of ours."""
    moment = create_message("builtin_interfaces/msg/Time", stamp // 10**9, stamp % 10**9)
    header = create_message("std_msgs/msg/Header", moment, frame_id)
    height, width = array.shape[:2]
    step = array.nbytes // height
    return create_message("sensor_msgs/msg/Image", header, height, width, encoding, 0, step, array.reshape(-1))
