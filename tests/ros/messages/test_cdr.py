"""Bytes of messages: as rosbags' own definitions of the types have them, and whatever bytes come."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rosbags")

from pipeline.errors import InputError
from pipeline.ros.messages import cdr
from pipeline.ros.messages.types import DEFINITIONS, create_message, message_store
from tests.support.ros.samples import picture, random_message, same, store
from tests.support.time_limits import time_limit

IMAGE, DETECTIONS = "sensor_msgs/msg/Image", "vision_msgs/msg/Detection2DArray"

HASHES = {
    IMAGE: "RIHS01_d31d41a9a4c4bc8eae9be757b0beed306564f7526c88ea6a4588fb9582527d47",
    DETECTIONS: "RIHS01_214274120007f4a683866481336b70310268cfa107aebe9d594a6acf75bda968",
    "diagnostic_msgs/msg/DiagnosticArray": "RIHS01_5a8a36efb05fb25070fa0fb3810290c0e6cd4862b54a8fb975a1ee8dc55a333e",
    "std_msgs/msg/Float32MultiArray": "RIHS01_0599f6f85b4bfca379873a0b4375a0aca022156bd2d7021275d116ed1fa8bfe0",
    "sensor_msgs/msg/CompressedImage": "RIHS01_15640771531571185e2efc8a100baf923961a4d15d5569652e6cb6691e8e371a",
}
"""As ROS's distributions publish them."""


@pytest.fixture(scope="module")
def rosbags() -> Any:
    return store()


@pytest.mark.parametrize("little", [True, False])
@pytest.mark.parametrize("name", DEFINITIONS)
def test_messages_pass_in_both_orders_of_bytes(name: str, little: bool, rosbags: Any) -> None:
    for seed in range(20):
        message = random_message(name, message_store().types, np.random.default_rng(seed))
        theirs = random_message(name, rosbags.types, np.random.default_rng(seed))
        data = bytes(rosbags.serialize_cdr(theirs, name, little_endian=little))
        assert same(cdr.decode(data, name), message, name)
        if little:
            assert cdr.encode(message, name) == data


def test_a_picture_s_bytes_are_those_of_the_standard() -> None:
    """Written out by hand: encapsulation, little-endian numbers aligned to their size, lengths in front."""
    array = np.array([[[1, 2, 3]]], np.uint8)
    data = cdr.encode(picture(array, 7_000_000_005, "cam"), IMAGE)
    assert data == (
        b"\0\1\0\0" + b"\7\0\0\0" + b"\5\0\0\0" + b"\4\0\0\0cam\0" + b"\1\0\0\0" + b"\1\0\0\0"
        b"\5\0\0\0rgb8\0" + b"\0" + b"\0\0" + b"\3\0\0\0" + b"\3\0\0\0" + b"\1\2\3"
    )  # fmt: skip


def test_hashes_of_types_are_those_of_ros() -> None:
    assert {name: message_store().hash_rihs01(name) for name in HASHES} == HASHES


def test_the_bytes_of_a_picture_are_a_view_of_the_message() -> None:
    array = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    data = cdr.encode(picture(array, 5), IMAGE)
    message = cdr.decode(data, IMAGE)
    assert np.shares_memory(message.data, np.frombuffer(data, np.uint8))
    assert message.data.tobytes() == array.tobytes()


def test_an_image_that_ends_early_is_refused_wherever_it_ends() -> None:
    data = cdr.encode(picture(np.zeros((2, 2, 3), np.uint8), 5), IMAGE)
    for length in range(len(data)):
        with pytest.raises(InputError, match="sensor_msgs"):
            cdr.decode(data[:length], IMAGE)


@pytest.mark.parametrize("name", [IMAGE, DETECTIONS, "std_msgs/msg/Float64MultiArray"])
def test_a_count_beyond_the_message_is_refused(name: str) -> None:
    data = cdr.encode(random_message(name, message_store().types, np.random.default_rng(0), count=0), name)
    data[-4:] = b"\xff\xff\xff\xff"
    with pytest.raises(InputError, match="is damaged"):
        cdr.decode(data, name)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_whatever_bytes_come_end_soon_in_a_message_or_one_error(name: str) -> None:
    """And in no more memory than a few times the message."""
    seed = random.Random(name)
    intact = cdr.encode(random_message(name, message_store().types, np.random.default_rng(0), count=40), name)
    tracemalloc.start()
    try:
        for _ in range(100):
            data = bytearray(intact)
            for _ in range(seed.randrange(1, 8)):
                data[seed.randrange(4, len(data))] = seed.choice((0, 1, 127, 255, seed.randrange(256)))
            with time_limit(10.0):
                try:
                    cdr.decode(data[: seed.randrange(len(data))] if seed.random() < 0.3 else data, name)
                except InputError as error:
                    assert name in str(error)  # noqa: PT017 - it may as well be a message
        assert tracemalloc.get_traced_memory()[1] < 1_000_000 + 100 * len(intact)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\3\0\0", b"\0\7\0\0", b"PK\3\4" + bytes(40)])
def test_other_encodings_are_refused(data: bytes) -> None:
    with pytest.raises(InputError, match="plain CDR"):
        cdr.decode(data, IMAGE)


def test_a_value_that_does_not_fit_its_field_is_refused() -> None:
    message = picture(np.zeros((2, 2, 3), np.uint8), 5)
    message.height = -1
    with pytest.raises(InputError, match=r"type sensor_msgs/msg/Image cannot be written: .*(format|range)"):
        cdr.encode(message, IMAGE)


def test_an_array_of_another_length_is_refused() -> None:
    name = "geometry_msgs/msg/PoseWithCovariance"
    message = random_message(name, message_store().types, np.random.default_rng(0))
    message.covariance = np.zeros(1)
    with pytest.raises(InputError, match=r"PoseWithCovariance cannot be written: .*array length"):
        cdr.encode(message, name)


def test_an_unknown_type_is_named_with_its_neighbours() -> None:
    with pytest.raises(InputError, match="did you mean 'sensor_msgs/msg/Image'"):
        cdr.decode(b"\0\1\0\0", "sensor_msgs/msg/Imag")


def test_messages_are_made_of_values_in_order() -> None:
    stamp = create_message("builtin_interfaces/msg/Time", 1, 2)
    assert (stamp.sec, stamp.nanosec) == (1, 2)
