"""Values without a fixed shape, as bytes of a fixed size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline.core.packed_value import CAPACITY, is_packed, pack, unpack
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError


def assert_equal(value: Any, expected: Any) -> None:
    assert type(value) is type(expected)
    if isinstance(expected, np.ndarray):
        assert (value.dtype, value.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(value, expected)
    elif isinstance(expected, list):
        for part, expected_part in zip(value, expected, strict=True):
            assert_equal(part, expected_part)
    else:
        assert value == expected


@pytest.mark.parametrize(
    "value",
    [
        None,
        "größer",
        np.array([["a", ""], ["monday", "\0"]], object),
        np.zeros((0, 4), np.float32),
        np.arange(6, dtype=np.int64).reshape(2, 3),
        np.array(True),
        [np.ones(2, np.float16), np.ones((1, 2), np.float16)],
        [{0: 0.25, 1: 0.75}, {"cat": 1.0}],
        [],
    ],
    ids=repr,
)
def test_a_value_comes_back(value: Any) -> None:
    array = pack(value)
    assert is_packed(TensorSpec("x", array.shape, str(array.dtype)))
    assert_equal(unpack(array), value)


def test_text_of_numpy_s_own_types() -> None:
    assert_equal(unpack(pack(np.array(["a", "bc"]))), np.array(["a", "bc"], object))
    assert_equal(unpack(pack(np.array([b"a"]))), np.array(["a"], object))


def test_a_value_that_is_too_large() -> None:
    with pytest.raises(InputError, match=f"and a frame has room for {CAPACITY - 8}"):
        pack(np.zeros(CAPACITY, np.uint8))


def test_objects_of_other_types() -> None:
    with pytest.raises(InputError, match="an array of objects may hold text only, not a dict"):
        pack(np.array([{}], object))


@pytest.mark.parametrize("data", [b"", b"\xff" * 100, b"\x05" + b"\0" * 7 + b"\x92\xa3map"], ids=repr)
def test_bytes_that_hold_no_value(data: bytes) -> None:
    array = np.zeros(CAPACITY, np.uint8)
    array[: len(data)] = np.frombuffer(data, np.uint8)
    with pytest.raises(InputError, match="bytes hold no packed value"):
        unpack(array)
