"""Bytes of messages: against rosbags, which encodes and decodes the same types independently."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline.errors import InputError
from pipeline.io.ros import cdr
from pipeline.io.ros.hashes import HASHES
from pipeline.io.ros.messages import DEFINITIONS, TYPES
from tests.ros.samples import filled, picture, same, store

IMAGE = "sensor_msgs/msg/Image"


@pytest.fixture(scope="module")
def rosbags() -> Any:
    return store()


@pytest.mark.parametrize("name", DEFINITIONS)
def test_bytes_are_those_of_rosbags(name: str, rosbags: Any) -> None:
    for seed in range(20):
        ours = filled(name, TYPES, np.random.default_rng(seed))
        theirs = filled(name, rosbags.types, np.random.default_rng(seed))
        # What rosbags adds behind the last field is padding.
        expected = bytes(rosbags.serialize_cdr(theirs, name))
        assert cdr.encode(ours, name) == expected[: len(cdr.encode(ours, name))]
        assert not any(expected[len(cdr.encode(ours, name)) :])
        assert same(rosbags.deserialize_cdr(cdr.encode(ours, name), name), ours, name)


@pytest.mark.parametrize("little", [True, False])
@pytest.mark.parametrize("name", DEFINITIONS)
def test_messages_of_rosbags_are_read_in_both_orders_of_bytes(name: str, little: bool, rosbags: Any) -> None:
    for seed in range(20):
        theirs = filled(name, rosbags.types, np.random.default_rng(seed))
        data = bytes(rosbags.serialize_cdr(theirs, name, little_endian=little))
        assert same(cdr.decode(data, name), theirs, name)


def test_hashes_of_types_are_those_of_rosbags(rosbags: Any) -> None:
    assert {name: rosbags.hash_rihs01(name) for name in HASHES} == HASHES


def test_the_bytes_of_a_picture_are_a_view_of_the_message() -> None:
    array = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    data = cdr.encode(picture(array, 5), IMAGE)
    found = cdr.decode(data, IMAGE)
    assert np.shares_memory(found.data, np.frombuffer(data, np.uint8))
    assert found.data.tobytes() == array.tobytes()


def test_an_image_that_ends_early_is_refused_wherever_it_ends() -> None:
    data = cdr.encode(picture(np.zeros((2, 2, 3), np.uint8), 5), IMAGE)
    for length in range(len(data)):
        with pytest.raises(InputError, match="sensor_msgs"):
            cdr.decode(data[:length], IMAGE)


def test_a_count_beyond_the_message_is_refused() -> None:
    name = "vision_msgs/msg/Detection2DArray"
    data = bytearray(cdr.encode(TYPES[name](), name))
    data[-4:] = b"\xff\xff\xff\xff"
    with pytest.raises(InputError, match="in the middle of a field"):
        cdr.decode(bytes(data), name)


def test_the_newer_encoding_aligns_to_four() -> None:
    name = "geometry_msgs/msg/Point"
    data = cdr.encode(TYPES[name](1.0, 2.0, 3.0), name)
    assert cdr.decode(b"\0\x07" + data[2:], name).z == 3.0
    stamped = "vision_msgs/msg/ObjectHypothesis"
    newer = b"\0\x07\0\0" + b"\x02\0\0\0a\0" + b"\0\0" + np.float64(0.5).tobytes()
    older = b"\0\x01\0\0" + b"\x02\0\0\0a\0" + b"\0\0" + np.float64(0.5).tobytes()
    assert cdr.decode(newer, stamped).score == cdr.decode(older, stamped).score == 0.5


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\3\0\0", b"PK\3\4" + bytes(40)])
def test_other_encodings_are_refused(data: bytes) -> None:
    with pytest.raises(InputError, match="plain CDR"):
        cdr.decode(data, IMAGE)


def test_a_value_that_does_not_fit_its_field_is_named() -> None:
    message = picture(np.zeros((2, 2, 3), np.uint8), 5)
    message.height = -1
    with pytest.raises(InputError, match="height of type uint32"):
        cdr.encode(message, IMAGE)


def test_an_array_of_another_length_is_named() -> None:
    name = "geometry_msgs/msg/PoseWithCovariance"
    message = TYPES[name]()
    message.covariance = [0.0]
    with pytest.raises(InputError, match="covariance of type float64: it has 36 values, not 1"):
        cdr.encode(message, name)


def test_an_unknown_type_is_named_with_its_neighbours() -> None:
    with pytest.raises(InputError, match="did you mean 'sensor_msgs/msg/Image'"):
        cdr.decode(b"\0\1\0\0", "sensor_msgs/msg/Imag")
