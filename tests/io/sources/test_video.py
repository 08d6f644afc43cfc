from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.model_card import Preparation
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.io.prepared_bundle import prepare_bundle
from pipeline.io.sinks.annotation import Annotator, as_picture
from pipeline.io.sinks.base import SinkOptions
from pipeline.io.sinks.encoders import Encoding
from pipeline.io.sinks.registry import open_sink
from pipeline.io.sinks.video import Video
from pipeline.io.source_frame import SECOND, StreamFrame
from pipeline.io.sources.video import VideoFile
from pipeline.io.stream import FrameStream
from tests.support import media

pytest.importorskip("av")


def stream(source: Path, target: Path, shape: tuple[int, ...], **options: Any) -> int:
    """Stream a video through a stage that changes nothing; return how many frames were delivered."""
    import pipeline

    with VideoFile(source) as frames, Video(target, Encoding("ffv1")) as results:
        bundle, _ = prepare_bundle(media.identity(shape), frames.pixels, Preparation())
        with pipeline.load(bundle, **options) as running:
            FrameStream(running, frames, results).run()
    return running.statistics().delivered


def test_a_video_comes_out_bit_for_bit_with_all_frames_in_order(tmp_path: Path) -> None:
    pictures = media.noise(30)
    source = media.write(tmp_path / "in.mkv", list(pictures))
    assert stream(source, tmp_path / "out.mkv", (48, 64, 3)) == 30
    results, times = media.read(tmp_path / "out.mkv")
    np.testing.assert_array_equal(results, pictures)
    assert times == [number / 25 for number in range(30)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.mkv", "out.mkv"]


def test_a_video_in_its_own_format_comes_out_bit_for_bit(tmp_path: Path) -> None:
    """Without a detour over RGB, which would lose something."""
    import av

    source = media.write(tmp_path / "in.mkv", list(media.noise(5)), pixels="yuv420p")
    with VideoFile(source) as frames, Video(tmp_path / "out.mkv", Encoding("ffv1")) as results:
        assert frames.pixels.format == "yuv420p"
        for frame in frames:
            results.add(StreamFrame(frame, {"y": np.zeros(3)}))
    planes = []
    for path in (source, tmp_path / "out.mkv"):
        with av.open(str(path)) as container:
            planes.append(np.stack([frame.to_ndarray() for frame in container.decode(video=0)]))
            assert planes[-1].shape == (5, 72, 64)
    np.testing.assert_array_equal(planes[0], planes[1])


def test_times_stay_as_uneven_as_they_are(tmp_path: Path) -> None:
    times = [0, 40, 41, 500, 1003]
    source = media.write(tmp_path / "in.mkv", list(media.noise(5)), times=times)
    with VideoFile(source) as frames:
        assert [frame.stamp for frame in frames] == [time * SECOND // 1000 for time in times]
    stream(source, tmp_path / "out.mkv", (48, 64, 3))
    assert media.read(tmp_path / "out.mkv")[1] == [time / 1000 for time in times]


def test_frames_have_names_and_the_file_may_have_any_name(tmp_path: Path) -> None:
    source = media.write(tmp_path / "a?b.mkv", list(media.noise(2)))
    with VideoFile(source) as frames:
        assert [frame.name for frame in frames] == ["a?b-000000", "a?b-000001"]


@pytest.mark.parametrize("pixels", ["yuv420p", "yuv422p", "yuv420p10le", "bgr0", "gray"])
def test_pictures_of_all_formats_have_the_decoder_s_own_colours(tmp_path: Path, pixels: str) -> None:
    source = media.write(tmp_path / "in.mkv", [media.smooth()], pixels=pixels)
    reference, _ = media.read(source)
    with VideoFile(source) as frames:
        (frame,) = frames
        assert isinstance(frame.inputs, np.ndarray)
        assert frame.inputs.shape == frames.pixels.shape
        np.testing.assert_allclose(frames.pixels.rgb(frame.inputs), reference[0], atol=1)


def test_h264_keeps_every_frame(tmp_path: Path) -> None:
    """Its pictures leave the decoder late and in another order than they were stored."""
    source = media.write(tmp_path / "in.mp4", [media.smooth()] * 60, "libx264", "yuv420p")
    with VideoFile(source) as frames:
        stamps = [frame.stamp for frame in frames]
    assert stamps == [number * SECOND // 25 for number in range(60)]


@pytest.mark.parametrize("damage", ["missing", "empty", "text", "no video"])
def test_what_is_no_video_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a.mkv"
    contents = {"empty": b"", "text": b"hello " * 1000}
    if damage in contents:
        path.write_bytes(contents[damage])
    if damage == "no video":
        import av

        with av.open(str(path), "w") as container:
            container.mux(container.add_stream("pcm_s16le", rate=8000).encode(None))
    with pytest.raises(InputError, match=r"no video|cannot open"):
        VideoFile(path)


def test_damage_is_named_or_skipped(tmp_path: Path) -> None:
    """PNG, since most decoders hide damage."""
    path = media.write(tmp_path / "a.mov", list(media.noise(20)), "png", "rgb24")
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 20] = bytes(20)
    path.write_bytes(data)
    with VideoFile(path) as frames, pytest.raises(InputError, match=r"damaged behind its picture \d+.*damaged=skip"):
        list(frames)
    with VideoFile(path, "skip") as frames:
        assert len(list(frames)) == 19
    with pytest.raises(InputError, match="'refuse' or 'skip'"):
        VideoFile(path, "ignore")


@pytest.mark.parametrize(("name", "codec", "pixels"), [("a.mkv", "ffv1", "bgr0"), ("a.mp4", "libx264", "yuv420p")])
def test_damaged_files_end_cleanly(tmp_path: Path, name: str, codec: str, pixels: str) -> None:
    path = media.write(tmp_path / name, list(media.noise(4, width=32, height=32)), codec, pixels)
    intact, random_ = path.read_bytes(), random.Random(0)
    for _ in range(60):
        data = bytearray(intact)
        for _ in range(random_.randrange(1, 20)):
            data[random_.randrange(len(data))] = random_.randrange(256)
        path.write_bytes(data[: random_.randrange(len(data))] if random_.random() < 0.3 else data)
        with contextlib.suppress(InputError), VideoFile(path) as frames:
            assert len(list(frames)) <= 5


def test_labels_are_drawn_and_the_rest_of_the_picture_stays(tmp_path: Path) -> None:
    picture = np.full((120, 160, 3), 90, np.uint8)
    labels = Annotator("label", ["cat", "dog"], sink_options=SinkOptions([TensorSpec("y", (2,))]))
    with Video(tmp_path / "a.mkv", Encoding("ffv1"), labels) as video:
        video.add(media.frame_result(np.array([0.1, 0.9]), picture))
    result = media.read(tmp_path / "a.mkv")[0][0]
    assert (result[:30, :60] != 90).any()
    assert (result[60:] == 90).all()


def test_no_file_stays_of_a_stream_without_a_picture(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Video(tmp_path / "a.mp4"):
        raise ZeroDivisionError
    with pytest.raises(InputError, match="no frame was delivered"), Video(tmp_path / "a.mp4"):
        pass
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_encoded_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="with the codec 'nonsense'"):
        Video(tmp_path / "a.mp4", Encoding("nonsense"))
    with pytest.raises(InputError, match="libx264"), Video(tmp_path / "a.mp4", Encoding("libx264")) as video:
        video.add(media.frame_result(np.zeros(2), media.smooth(63, 47)))
    with pytest.raises(InputError, match="neither the source nor the model"), Video(tmp_path / "a.mkv") as video:
        video.add(media.frame_result(np.zeros(2)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("shape", "dtype", "reference"),
    [
        ((48, 64, 3), "uint8", (48, 64, 3)),
        ((1, 3, 48, 64), "float32", (48, 64, 3)),
        ((1, 48, 64, 1), "float32", (48, 64)),
        ((1, 1000), "float32", None),
        ((1, 3, 4, 4), "float32", None),
        ((48, 64, 3), "int64", None),
    ],
)
def test_outputs_that_are_pictures(shape: Any, dtype: str, reference: Any) -> None:
    picture = as_picture(np.ones(shape, dtype))
    assert (None if picture is None else picture.shape) == reference
    if picture is not None:
        assert picture.dtype == np.uint8
        assert (picture == (255 if dtype == "float32" else 1)).all()


def test_the_model_s_pictures_are_what_is_written(tmp_path: Path) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
    with open_sink(f"{tmp_path / 'a.mkv'}?codec=ffv1", ()) as video:
        video.add(media.frame_result(picture, media.smooth()))
    np.testing.assert_array_equal(media.read(tmp_path / "a.mkv")[0][0], picture)
