"""Commands and pipelines as sources of ``soc-pipeline run``: the command line is the user's own."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import media
from tests.support.gst import skip_without_gstreamer

LIMIT = 60.0
RPICAM = f"{sys.executable} {Path(__file__).parents[1] / 'support/rpicam_vid.py'} -n -o -"


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that passes grey pictures on; read only."""
    path = tmp_path_factory.mktemp("bundle") / "same.bundle"
    media.identity((48, 64, 3)).save(path)
    return path


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_camera_s_command_as_well(
    process: Any, identity: Path, signal_number: signal.Signals
) -> None:
    """What it wrote until then stands alone on standard output."""
    pytest.importorskip("av")
    text = f"exec:{RPICAM} -t 0?size=64x48"
    with process("run", identity, "--source", text, "--sink", "-") as running:
        try:
            lines = [running.stdout.readline() for _ in range(3)]
            children = psutil.Process(running.pid).children(recursive=True)
            running.send_signal(signal_number)
            # Not by `communicate`, which leaves out what has been read beyond the three lines.
            rest, errors = running.stdout.read(), running.stderr.read()
            running.wait(LIMIT)
        finally:
            running.kill()
    assert running.returncode == 0, errors
    assert [child for child in children if "rpicam_vid.py" in str(child.cmdline() if child.is_running() else "")] == []
    numbers = [json.loads(line)["number"] for line in [*lines, *rest.splitlines()]]
    assert numbers == sorted(numbers)
    assert " frames, " in errors


def test_a_pipeline_of_gstreamer_into_another(command: Any, identity: Path, tmp_path: Path) -> None:
    pytest.importorskip("av")
    skip_without_gstreamer("videotestsrc", "videoconvert", "appsink", "appsrc", "jpegenc", "matroskamux")
    text = "gst:videotestsrc num-buffers=9 ! video/x-raw,width=64,height=48"
    sinks = [
        "--sink",
        f"gst:jpegenc ! matroskamux ! filesink location={tmp_path / 'a.mkv'}",
        "--sink",
        tmp_path / "a.jsonl",
    ]
    result = command("run", identity, "--source", text, *sinks)
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith("9 frames, ")
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == len(media.read(tmp_path / "a.mkv")[0]) == 9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--source", "exec:no-such-program?size=64x48"], "cannot run exec: 'no-such-program'"),
        (["--source", f"exec:{RPICAM} --camera 1?size=64x48"], "no cameras available"),
        (["--source", "exec:true", "--fps", "3"], "its pace is its own"),
        (["--source", "pattern:64x48", "--sink", "mjpeg:x"], "'x' is no port"),
    ],
)
def test_what_is_wrong_is_one_line(command: Any, identity: Path, arguments: list[str], message: str) -> None:
    pytest.importorskip("av")
    result = command("run", identity, *arguments)
    assert (result.status, result.out) == (2, "")
    assert message in result.err
    assert result.err.count("\n") == 1
