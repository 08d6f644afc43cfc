"""Encoders as options of a video, and the thread that they work in."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import InputError
from pipeline.io.sinks import registry
from pipeline.io.sinks.encoders import HARDWARE, Encoding, choose_encoder, parse_encoding
from pipeline.io.sinks.video import Video
from pipeline.io.source_frame import StreamFrame
from pipeline.io.sources.video import VideoFile
from tests.support import media

av = pytest.importorskip("av")


def codec_of(path: Path) -> str:
    with av.open(str(path)) as container:
        return str(container.streams.video[0].codec_context.name)


def write(text: str, count: int = 5) -> list[str]:
    """Write pictures to a sink; return the lines that it said."""
    lines: list[str] = []
    with registry.open_sinks([text], (), notice=lines.append) as sink:
        for number in range(count):
            sink.add(media.frame_result(np.zeros(1), media.smooth(640, 480), stamp=number * 40_000_000))
    return lines


@pytest.mark.parametrize("option", ["codec=mpeg4", "encoder=mpeg4", "encoder=mpeg4&threads=1"])
def test_the_encoder_is_an_option_and_codec_its_earlier_name(tmp_path: Path, option: str) -> None:
    assert write(f"{tmp_path / 'a.mp4'}?{option}") == []
    assert codec_of(tmp_path / "a.mp4") == "mpeg4"
    assert media.count(tmp_path / "a.mp4") == 5


@pytest.mark.parametrize("name", ["hardware", *HARDWARE])
def test_without_the_hardware_the_processor_encodes_and_a_line_says_so(tmp_path: Path, name: str) -> None:
    lines = write(f"{tmp_path / 'a.mp4'}?encoder={name}")
    assert media.count(tmp_path / "a.mp4") == 5
    # Either this machine has it, or it was said.
    lacks: list[str] = []
    choose_encoder(Encoding(name), lacks.append)
    assert lines == lacks
    assert all("encodes on the processor" in line and (name == "hardware" or name in line) for line in lines)


@pytest.mark.skipif("libx264" not in av.codecs_available, reason="this build of FFmpeg has no x264")
def test_more_bits_make_a_larger_file(tmp_path: Path) -> None:
    sizes = []
    for rate in ("100k", "20M"):
        path = tmp_path / f"{rate}.mp4"
        with registry.open_sinks([f"{path}?encoder=libx264&bitrate={rate}"], ()) as sink:
            for number, picture in enumerate(media.noise(20, width=320, height=240)):
                sink.add(media.frame_result(np.zeros(1), picture, stamp=number * 40_000_000))
        sizes.append(path.stat().st_size)
    assert sizes[1] > 2 * sizes[0]


@pytest.mark.parametrize("codec", ["mjpeg", "libvpx-vp9", "ffv1"])
def test_other_encoders_take_a_decoder_s_pictures(tmp_path: Path, codec: str) -> None:
    if codec not in av.codecs_available:
        pytest.skip(f"this build of FFmpeg has no {codec}")
    source = media.write(tmp_path / "in.mkv", list(media.noise(3)), "libx264", "yuv420p")
    with VideoFile(source) as frames, registry.open_sinks([f"{tmp_path / 'out.mkv'}?encoder={codec}"], ()) as sink:
        for frame in frames:
            sink.add(StreamFrame(frame, {"y": np.zeros(3)}))
    assert media.count(tmp_path / "out.mkv") == 3


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("encoder=nonsense", "'nonsense': this build of FFmpeg has none of that name"),
        ("bitrate=fast", "bitrate is 'fast'; write bits per second, such as 4M"),
        ("encoder=mpeg4&bitrate=2M", "bitrate is not for the encoder 'mpeg4'"),
        ("threads=-1", "threads is '-1'; it must be a whole number"),
        ("presets=fast", "did you mean 'preset'"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_the_first_picture(
    tmp_path: Path, option: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        registry.open_sink(f"{tmp_path / 'a.mp4'}?{option}", ())
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif("libx264" not in av.codecs_available, reason="this build of FFmpeg has no x264")
def test_an_unknown_preset_is_refused_before_the_first_picture(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'libx264' and the preset 'warp'"):
        registry.open_sink(f"{tmp_path / 'a.mp4'}?encoder=libx264&preset=warp", ())
    fast = parse_encoding({"codec": "libx264", "preset": "ultrafast", "bitrate": "800k", "threads": "2"})
    assert fast == Encoding("libx264", "ultrafast", 800_000, 2)
    assert choose_encoder(fast, pytest.fail) == "libx264"


@pytest.mark.parametrize("at_end", [False, True])
def test_an_error_of_the_encoder_reaches_whoever_adds_or_finishes(tmp_path: Path, *, at_end: bool) -> None:
    """A picture whose size the encoder cannot have is found in its own thread."""
    odd = media.frame_result(np.zeros(1), media.smooth(63, 47))
    with pytest.raises(InputError, match=r"cannot write .*a\.mp4"), Video(tmp_path / "a.mp4") as video:
        while True:
            video.add(odd)
            if at_end:
                break
    assert not list(tmp_path.iterdir())
    assert not [thread for thread in threading.enumerate() if thread.name == "encoder"]


def test_nothing_of_the_thread_stays_behind_a_finished_video(tmp_path: Path) -> None:
    with Video(tmp_path / "a.mp4") as video:
        for number, picture in enumerate(media.noise(30)):
            video.add(media.frame_result(np.zeros(1), picture, stamp=number * 40_000_000))
    assert media.count(tmp_path / "a.mp4") == 30
    assert not [thread for thread in threading.enumerate() if thread.name == "encoder"]


@pytest.mark.parametrize("threads", [1, 3])
def test_the_decoder_s_threads_are_an_option(tmp_path: Path, threads: int) -> None:
    from pipeline.io.sources.base import SourceOptions
    from pipeline.io.sources.registry import open_source

    path = media.write(tmp_path / "in.mkv", list(media.noise(8)))
    with open_source(f"video:{path}?threads={threads}", SourceOptions()) as source:
        assert len(list(source)) == 8
    with pytest.raises(InputError, match="threads is 'many'"):
        open_source(f"video:{path}?threads=many", SourceOptions())
