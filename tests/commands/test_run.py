"""``soc-pipeline run`` with sources and sinks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.io import media

pytest.importorskip("av")


@pytest.fixture
def same(tmp_path: Path) -> Path:
    """A bundle that passes pictures on."""
    path = tmp_path / "same.bundle"
    media.identity((48, 64, 3)).save(path)
    return path


@pytest.fixture
def video(tmp_path: Path) -> Path:
    return media.write(tmp_path / "in.mkv", list(media.noise(12)))


def test_a_video_through_a_pipeline_into_all_sinks(command: Any, same: Path, video: Path, tmp_path: Path) -> None:
    pytest.importorskip("rosbags")
    sinks = [
        f"{tmp_path / 'out.mkv'}?codec=ffv1",
        f"bag:{tmp_path / 'bag'}",
        tmp_path / "out.jsonl",
        tmp_path / "out.npz",
    ]
    done = command("run", same, "--source", video, *(part for sink in sinks for part in ("--sink", sink)))
    assert (done.status, done.err) == (0, "")
    first, second, *outputs = done.out.splitlines()
    assert first.startswith("12 frames, ")
    assert second.startswith("Latency from capture: p50 ")
    assert outputs == [f"Outputs: {sink}" for sink in sinks]
    with np.load(tmp_path / "out.npz") as stored:
        np.testing.assert_array_equal(stored["y"], media.noise(12))
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["timestamp"] for line in lines] == [number / 25 for number in range(12)]
    again = command(
        "run", same, "--source", f"bag:{tmp_path / 'bag'}", "--sink", f"{tmp_path / 'again.mkv'}?codec=ffv1"
    )
    assert again.status == 0
    for name in ("out.mkv", "again.mkv"):
        found, times = media.read(tmp_path / name)
        np.testing.assert_array_equal(found, media.noise(12))
        assert times == [number / 25 for number in range(12)]


def test_pictures_are_prepared_in_a_stage_of_its_own(command: Any, bundle: Path, video: Path, tmp_path: Path) -> None:
    options = ["--resize", "letterbox", "--mean", "0.5", "--std", "0.5", "--frames", 5, "--json"]
    done = command("run", bundle, "--source", video, "--sink", f"{tmp_path / 'out.mp4'}?show=label", *options)
    assert (done.status, done.err) == (0, "")
    found = json.loads(done.out)
    assert [stage["name"] for stage in found["stages"]] == ["prepare", "stage0", "stage1"]
    assert (found["delivered"], found["passed_over"]) == (5, 0)
    assert 0 < found["capture_latency_s"]["p50"] <= found["capture_latency_s"]["p99"]
    assert len(media.read(tmp_path / "out.mp4")[0]) == 5


def test_lines_on_standard_output_stand_alone(command: Any, bundle: Path, frames: Path) -> None:
    done = command("run", bundle, "--input", frames, "--sink", "jsonl:-")
    assert done.status == 0
    assert [len(json.loads(line)["outputs"]) for line in done.out.splitlines()] == [1] * 6
    assert done.err.startswith("6 frames, ")


def test_what_is_live_takes_the_newest_frame(command: Any, same: Path) -> None:
    done = command("run", same, "--source", "pattern:64x48@1000", "--frames", 50, "--json")
    found = json.loads(done.out)
    assert done.status == 0
    assert found["submitted"] + found["passed_over"] == 50
    assert found["delivered"] + sum(found["dropped"].values()) == found["submitted"]
    assert set(found["dropped"]) <= {"replaced"}


def test_a_deadline_that_cannot_be_met(command: Any, same: Path) -> None:
    options = ["--fps", 200, "--admission", "deadline", "--deadline", "1e-9", "--frames", 20]
    done = command("run", same, "--source", "pattern:64x48", *options)
    assert done.status == 0
    assert done.out.startswith("0 frames, ")
    assert "20 dropped (late)" in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--source", "missing.mp4"], "no video file at 'missing.mp4'"),
        (["--source", "missing"], "no source at 'missing'; supported are camera:/dev/video0"),
        (["--source", "camera:/dev/no-camera"], "no such file"),
        (["--source", "camera:/dev/no-camera?rate=30"], "has the option 'rate'"),
        (["--source", "rtsp://127.0.0.1:1/x"], "cannot open 'rtsp://127.0.0.1:1/x'"),
        (["--source", "rtsp://127.0.0.1:1/x", "--fps", "30"], "its pace is its own"),
        (["--source", "bag:missing"], "no bag at"),
        (["--source", "pattern:64"], "is not a size"),
        (["--source", "pattern:64x48@30", "--fps", "20"], "a pattern has one pace"),
        (["--source", "pattern:64x48", "--fps", "x"], "--fps is 'x'"),
        (["--source", "pattern:64x48", "--fps", "2", "--speed", "2"], "give one of them"),
        (["--source", "pattern:64x48", "--reconnect", "2"], "is not live"),
        (["--source", "pattern:64x48", "--frames", "0"], "--frames is '0'"),
        (["--source", "pattern:64x48", "--mean", "a"], "--mean is 'a'"),
        (["--source", "pattern:64x48", "--resize", "fit"], "'letterbox'"),
        (["--source", "pattern:64x48", "--admission", "newest"], "must be one of 'block'"),
        (["--source", "pattern:64x48", "--admission", "deadline"], "needs deadline=seconds"),
        (["--source", "pattern:64x48", "--waiting", "3"], "waiting is 3"),
        (["--source", "pattern:64x48", "--on-error", "ignore"], "'skip' or 'stop'"),
        (["--source", "pattern:64x48", "--on-timeout", "wait"], "'fail-frame'"),
        (["--source", "pattern:64x48", "--stage-timeout", "other=1"], "a limit for the stage 'other'"),
        (["--source", "pattern:64x48", "--stage-timeout", "1", "--stage-timeout", "same=1"], "one or the other"),
        (["--source", "pattern:64x48", "--sink", "out.gif"], "cannot write 'out.gif'"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_line(command: Any, same: Path, arguments: list[str], message: str) -> None:
    done = command("run", same, *arguments)
    assert (done.status, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("\n") == 1
