"""Commands as sources: a stand-in for Raspberry Pi's ``rpicam-vid``, and commands that go wrong."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from pipeline.errors import InputError, SourceLost
from pipeline.io.source_frame import SourceFrame
from pipeline.io.sources.base import FrameSource, SourceOptions
from pipeline.io.sources.registry import open_source
from tests.support.alive import collect
from tests.support.gst import skip_without_gstreamer

RPICAM = f"{sys.executable} {Path(__file__).parents[2] / 'support/rpicam_vid.py'} -n -o -"
"""As on a Raspberry Pi, but for the name of the program."""


def open_command(text: str, **options: Any) -> FrameSource:
    return open_source(f"exec:{text}", SourceOptions(allow_commands=True, **options))


def children() -> set[int]:
    """Return the processes that this one has started, and theirs."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


def levels(frames: list[SourceFrame]) -> list[int]:
    """Return the brightness of each picture's middle."""
    return [int(np.asarray(frame.inputs)[20, 30]) for frame in frames]


def test_raw_pictures_are_read_whole_and_in_order() -> None:
    before, begin = children(), time.time()
    with open_command(f"{RPICAM} -t 0?size=64x48&format=yuv420p") as source:
        frames = list(islice(source, 30))
        assert len(children() - before) == 1
    assert source.live
    assert source.pixels is not None
    assert (source.pixels.format, source.pixels.shape) == ("yuv420p", (72, 64))
    assert levels(frames) == list(range(30))
    assert all(begin < frame.timestamp <= time.time() for frame in frames)
    assert children() <= before


def test_large_pictures_pass_in_parts() -> None:
    with open_command(f"{RPICAM} -t 0 --width 640 --height 480?size=640x480") as source:
        frames = list(islice(source, 3))
    assert [np.unique(np.asarray(frame.inputs)[:480]).tolist() for frame in frames] == [[0], [1], [2]]


@pytest.mark.parametrize("option", ["?format=mjpeg", ""])
def test_encoded_pictures_are_decoded(option: str) -> None:
    pytest.importorskip("av")
    pytest.importorskip("PIL")
    with open_command(f"{RPICAM} -t 0 --codec mjpeg --width 640 --height 480{option}") as source:
        frames = list(islice(source, 10))
    assert source.pixels is not None
    assert source.pixels.format == "yuvj420p"
    # The first one is there, which costs FFmpeg's usual way of looking at streams.
    assert levels(frames) == pytest.approx(list(range(10)), abs=1)


def test_a_command_of_gstreamer() -> None:
    """As for cameras of Jetsons."""
    skip_without_gstreamer("videotestsrc", "fdsink")
    text = "gst-launch-1.0 -q videotestsrc is-live=true pattern=white ! video/x-raw,format=NV12,width=64,height=48"
    if not any((Path(folder) / "gst-launch-1.0").exists() for folder in os.get_exec_path()):
        pytest.skip("GStreamer has no gst-launch-1.0; apt-get install gstreamer1.0-tools")
    with open_command(f"{text} ! fdsink?size=64x48&format=nv12") as source:
        (frame,) = islice(source, 1)
    assert np.asarray(frame.inputs)[:48].min() > 230


def test_a_command_that_was_told_how_long_to_run_ends_well() -> None:
    with open_command(f"{RPICAM} -t 70?size=64x48") as source:
        assert levels(list(source)) == list(range(7))


def test_a_command_that_dies_is_a_loss_with_its_last_words() -> None:
    script = "import sys; sys.stdout.buffer.write(bytes(2 * 4608)); sys.exit('first\\n  no more light \\n')"
    with open_command(f"{sys.executable} -c {shlex.quote(script)}?size=64x48") as source:
        frames: list[SourceFrame] = []
        with pytest.raises(SourceLost, match=r"has ended with status 1: no more light, after 2 frames"):
            frames.extend(source)


def test_a_lost_command_is_started_again() -> None:
    notices: list[str] = []
    with open_command(f"{RPICAM} -t 50?size=64x48", reconnect=20.0, notice=notices.append) as source:
        assert levels(list(islice(source, 8))) == [0, 1, 2, 3, 4, 0, 1, 2]
    assert notices[1] == "back again"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no command; write 'exec:PROGRAM ARGUMENTS"),
        ("'a", "no closing quotation"),
        ("no-such-program -o -?size=64x48", "cannot run exec: 'no-such-program': no such file or directory"),
        (f"{RPICAM} --camera 1?size=64x48", r"has ended with status 255: ERROR: \*\*\* no cameras available \*\*\*$"),
        ("true?size=64x48", "exec: 'true' has ended without a picture"),
        ("sh -c 'kill -SEGV $$'?size=64x48", "exec: 'sh' has ended with SIGSEGV"),
        ("echo a?size=64x48", "its last picture has 2 bytes of 4608; check the size"),
        (f"{RPICAM}?size=64", "'64' is not a size"),
        (f"{RPICAM}?size=64x50", "yuv420p needs an even width and a height divisible by 4"),
        (f"{RPICAM}?sizes=64x48", "has the option 'sizes'; the options are size, format; did you mean 'size'"),
        (f"{RPICAM}?format=nv12", "pictures of a size= are raw"),
        (f"{RPICAM}?format=mjpeg&size=64x48", "those without it encoded"),
    ],
)
def test_what_is_wrong_is_one_line(text: str, message: str) -> None:
    before = children()
    with pytest.raises(InputError, match=message) as error:
        open_command(text)
    assert "\n" not in str(error.value)
    assert children() <= before


def test_a_command_without_pictures_is_described_by_its_failure(tmp_path: Path) -> None:
    pytest.importorskip("av")
    with pytest.raises(InputError, match="no cameras available"):
        open_command(f"{RPICAM} --camera 1")
    with pytest.raises(InputError, match="no container format 'mjpegs'"):
        open_command(f"{RPICAM} -t 0?format=mjpegs")


def test_options_come_behind_the_last_question_mark(tmp_path: Path) -> None:
    script = tmp_path / "what?a=b"
    script.write_text(f"exec {RPICAM} -t 0\n")
    with open_command(f"sh '{script}'?size=64x48") as source:
        assert levels(list(islice(source, 2))) == [0, 1]


def test_what_a_command_has_started_ends_with_it() -> None:
    before = children()
    with open_command(f"sh -c 'trap \"\" TERM; {RPICAM} -t 0 & wait'?size=64x48") as source:
        next(iter(source))
        assert len(children() - before) == 2
    assert children() <= before


def test_a_forgotten_command_ends_as_well() -> None:
    before = children()
    source = open_command(f"{RPICAM} -t 0?size=64x48")
    assert children() - before
    del source
    collect()
    assert children() <= before


def test_an_interrupt_while_a_command_is_silent_ends_it() -> None:
    before = children()
    previous_handler = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            open_command("sleep 60?size=64x48")
    finally:
        signal.signal(signal.SIGALRM, previous_handler)
    assert children() <= before


@pytest.mark.parametrize("text", ["exec:touch {0}?size=64x48", "gst:videotestsrc ! filesink location={0}"])
def test_commands_of_somebody_else_are_not_run(tmp_path: Path, text: str) -> None:
    """As a file that names a source would bring them."""
    with pytest.raises(InputError, match="would run a command of somebody else's file"):
        open_source(text.format(tmp_path / "proof"), SourceOptions())
    assert not list(tmp_path.iterdir())
