from __future__ import annotations

import random
import shutil
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.io.source_frame import SECOND, SourceFrame, StreamFrame
from pipeline.ros.bag_sink import BagSink
from pipeline.ros.bag_source import Bag, is_bag
from pipeline.ros.messages import images
from pipeline.ros.messages.types import message_store
from tests.support import media

pytest.importorskip("rosbags")

# Nanoseconds that a float of seconds would round.
STAMPS = [1_700_000_000 * SECOND + number * 33_333_333 + 1 for number in range(4)]
PICTURE, SCORES = TensorSpec("picture", (48, 64, 3), "uint8"), TensorSpec("soft.max", (1, 10))


def write(path: Path, storage: str = "mcap") -> np.ndarray:
    pictures = media.noise(4)
    with BagSink(path, [PICTURE, SCORES], storage) as bag:
        for picture, stamp in zip(pictures, STAMPS, strict=True):
            frame = SourceFrame("a", np.zeros(1), stamp, frame_id="camera")
            outputs = {"picture": picture, "soft.max": np.full((1, 10), stamp % 7, np.float32)}
            bag.add(StreamFrame(frame, outputs))
    return pictures


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_what_is_written_is_read_again_by_rosbags_and_by_the_source(tmp_path: Path, storage: str) -> None:
    from rosbags.highlevel import AnyReader

    path = tmp_path / "bag"
    pictures = write(path, storage)
    assert list(tmp_path.iterdir()) == [path]
    with AnyReader([path]) as reader:
        messages = [
            (topic.topic, stamp, reader.deserialize(data, topic.msgtype)) for topic, stamp, data in reader.messages()
        ]
    images_read: list[Any] = [(stamp, message) for topic, stamp, message in messages if topic == "/picture"]
    assert [stamp for stamp, _ in images_read] == STAMPS
    for (stamp, message), picture in zip(images_read, pictures, strict=True):
        assert message.header.stamp.sec * SECOND + message.header.stamp.nanosec == stamp
        assert message.header.frame_id == "camera"
        assert (message.encoding, message.height, message.width, message.step) == ("rgb8", 48, 64, 192)
        np.testing.assert_array_equal(message.data.reshape(48, 64, 3), picture)
    with Bag(path, topic="/picture") as source:
        frames = list(source)
    assert [(frame.stamp, frame.frame_id) for frame in frames] == [(stamp, "camera") for stamp in STAMPS]
    np.testing.assert_array_equal([frame.inputs for frame in frames], pictures)
    with Bag(path, [SCORES], topic="/soft_max") as source:
        arrays = [(frame.stamp, frame.inputs) for frame in source]
    for stamp, array in arrays:
        np.testing.assert_array_equal(array, np.full((1, 10), stamp % 7, np.float32))


def test_one_file_of_a_bag_is_enough(tmp_path: Path) -> None:
    write(tmp_path / "bag")
    shutil.copy(tmp_path / "bag" / "bag.mcap", tmp_path / "alone.mcap")
    assert is_bag(tmp_path / "bag")
    assert is_bag(tmp_path / "alone.mcap")
    with Bag(tmp_path / "alone.mcap", topic="/picture") as source:
        assert len(list(source)) == 4


def test_topics_are_chosen_or_named(tmp_path: Path) -> None:
    write(tmp_path / "bag")
    with pytest.raises(InputError, match=r"several; write .*topic=TOPIC.*: /picture, /soft_max"):
        Bag(tmp_path / "bag")
    with pytest.raises(InputError, match=r"no '/pictures'; did you mean '/picture'"):
        Bag(tmp_path / "bag", topic="/pictures")
    with pytest.raises(InputError, match="has the inputs a, b"):
        Bag(tmp_path / "bag", [TensorSpec("a", (1,)), TensorSpec("b", (1,))], topic="/soft_max")
    with BagSink(tmp_path / "one", [PICTURE]) as bag:
        bag.add(StreamFrame(media.frame_result(None).frame, {"picture": media.smooth()}))
    with Bag(tmp_path / "one") as source:
        assert len(list(source)) == 1


def test_a_bag_without_messages_is_refused(tmp_path: Path) -> None:
    with BagSink(tmp_path / "bag", [PICTURE]):
        pass
    with pytest.raises(InputError, match="has no message in /picture"):
        Bag(tmp_path / "bag")
    with pytest.raises(InputError, match="no bag at"):
        Bag(tmp_path / "missing")


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_damaged_bags_end_cleanly(tmp_path: Path, storage: str) -> None:
    write(tmp_path / "bag", storage)
    path = next(each for each in (tmp_path / "bag").iterdir() if each.suffix != ".yaml")
    intact, random_ = path.read_bytes(), random.Random(0)
    refusals = 0
    for _ in range(40):
        data = bytearray(intact)
        for _ in range(random_.randrange(1, 30)):
            data[random_.randrange(len(data))] = random_.randrange(256)
        path.write_bytes(data[: random_.randrange(len(data))] if random_.random() < 0.5 else data)
        try:
            with Bag(tmp_path / "bag", topic="/picture") as source:
                list(source)
        except InputError:
            refusals += 1
    assert refusals > 10


def test_a_failure_before_the_first_message_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), BagSink(tmp_path / "bag", [PICTURE]):
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bag").mkdir()
    with pytest.raises(InputError, match="exists"):
        BagSink(tmp_path / "bag", [PICTURE])
    with pytest.raises(InputError, match="'mcap' or 'sqlite3'"):
        BagSink(tmp_path / "new", [PICTURE], "db3")
    with pytest.raises(InputError, match="no message for arrays of complex64"):
        BagSink(tmp_path / "new", [TensorSpec("x", (2,), "complex64")])
    assert [path.name for path in tmp_path.iterdir()] == ["bag"]


def message(encoding: str, data: np.ndarray, width: int = 64, height: int = 48, step: int = 0) -> Any:
    return SimpleNamespace(
        encoding=encoding, width=width, height=height, step=step, is_bigendian=0, data=data.reshape(-1)
    )


@pytest.mark.parametrize("padding", [0, 5])
@pytest.mark.parametrize(("encoding", "bytes_"), [("rgb8", 3), ("bgr8", 3), ("mono8", 1), ("rgba8", 4), ("yuyv", 2)])
def test_images_are_read_as_they_are_encoded(encoding: str, bytes_: int, padding: int) -> None:
    encoding = {"yuyv": "yuv422_yuy2"}.get(encoding, encoding)
    rows = np.random.default_rng(0).integers(0, 256, (48, 64 * bytes_ + padding), np.uint8)
    pixels, array = images.read_picture(message(encoding, rows, step=rows.shape[1]))
    assert pixels is not None
    assert array.shape == pixels.shape
    np.testing.assert_array_equal(array.reshape(48, -1), rows[:, : 64 * bytes_])


def test_uyvy_is_yuyv_with_its_bytes_exchanged() -> None:
    yuyv = np.random.default_rng(0).integers(0, 256, (48, 64, 2), np.uint8)
    pixels, array = images.read_picture(message("uyvy", np.ascontiguousarray(yuyv[..., ::-1])))
    assert pixels is not None
    assert pixels.format == "yuyv422"
    np.testing.assert_array_equal(array, yuyv)


def test_nv21_is_nv12_with_its_colours_exchanged() -> None:
    planes = np.random.default_rng(0).integers(0, 256, (72, 64), np.uint8)
    pixels, array = images.read_picture(message("nv21", planes, height=48, step=64))
    assert pixels is not None
    assert pixels.format == "nv12"
    np.testing.assert_array_equal(array[:48], planes[:48])
    np.testing.assert_array_equal(array[48:, ::2], planes[48:, 1::2])
    np.testing.assert_array_equal(array[48:, 1::2], planes[48:, ::2])


@pytest.mark.parametrize("big", [False, True])
def test_pixels_of_16_bits_are_read_by_their_high_bytes(big: bool) -> None:
    values = np.random.default_rng(0).integers(0, 65536, (48, 64, 3), np.uint16)
    image = message("rgb16", values.astype(">u2" if big else "<u2").view(np.uint8).reshape(48, -1), step=384)
    image.is_bigendian = int(big)
    pixels, array = images.read_picture(image)
    assert pixels is not None
    assert pixels.format == "rgb24"
    np.testing.assert_array_equal(array, values >> 8)


def test_distances_are_an_array_and_no_picture() -> None:
    metres = np.random.default_rng(0).random((48, 64), np.float32)
    pixels, array = images.read_picture(message("32FC1", metres.view(np.uint8), step=256))
    assert pixels is None
    np.testing.assert_array_equal(array, metres)


def test_the_mosaic_of_a_sensor_becomes_rgb() -> None:
    # Of one colour everywhere: the sensor's rows are red and green, and green and blue.
    mosaic = np.tile(np.array([[200, 100], [100, 50]], np.uint8), (24, 32))
    pixels, array = images.read_picture(message("bayer_rggb8", mosaic))
    assert pixels is not None
    assert pixels.format == "rgb24"
    np.testing.assert_array_equal(array[8:-8, 8:-8], np.broadcast_to([200, 100, 50], (32, 48, 3)))


@pytest.mark.parametrize(
    ("encoding", "size", "step"), [("bayer_rggb16", 64 * 96, 128), ("rgb8", 64 * 48, 0), ("rgb8", 64 * 48 * 3, 64)]
)
def test_images_that_cannot_be(encoding: str, size: int, step: int) -> None:
    with pytest.raises(InputError, match=r"cannot be read|has .* bytes"):
        images.read_picture(message(encoding, np.zeros(size, np.uint8), step=step))


@pytest.mark.parametrize("codec", ["mjpeg", "png"])
def test_compressed_images_from_a_bag(tmp_path: Path, codec: str) -> None:
    av = pytest.importorskip("av")
    from rosbags.rosbag2 import Writer

    encoder = av.CodecContext.create(codec, "w")
    encoder.width, encoder.height, encoder.pix_fmt = 64, 48, "yuvj420p" if codec == "mjpeg" else "rgb24"
    encoder.time_base = Fraction(1, 25)
    packets = encoder.encode(av.VideoFrame.from_ndarray(media.smooth(), "rgb24").reformat(format=encoder.pix_fmt))
    data = np.frombuffer(bytes((packets or encoder.encode(None))[0]), np.uint8)
    store = message_store()
    kind = "sensor_msgs/msg/CompressedImage"
    header = store.types["std_msgs/msg/Header"](store.types["builtin_interfaces/msg/Time"](5, 7), "camera")
    with Writer(tmp_path / "bag", version=9) as writer:
        topic = writer.add_connection("/camera", kind, typestore=store)
        for _ in range(3):
            writer.write(topic, 9, store.serialize_cdr(store.types[kind](header, codec, data), kind))
    with Bag(tmp_path / "bag") as source:
        frames = list(source)
    assert [(frame.stamp, frame.frame_id) for frame in frames] == [(5 * SECOND + 7, "camera")] * 3
    for frame in frames:
        assert frame.pixels is not None
        assert isinstance(frame.inputs, np.ndarray)
        assert abs(frame.pixels.rgb(frame.inputs).astype(int) - media.smooth()).mean() < 4
    cut_image = SimpleNamespace(format="jpeg", data=data[: len(data) // 3])
    for message in (cut_image, SimpleNamespace(format="webp", data=b"RIFF")):
        with pytest.raises(InputError, match=r"damaged|neither"):
            images.Decompressor().read_picture(message)
