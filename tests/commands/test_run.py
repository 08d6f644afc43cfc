"""``soc-pipeline run`` with sources and sinks."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import pipeline
from tests.support import detectors, media

pytest.importorskip("av")


@pytest.fixture
def identity(tmp_path: Path) -> Path:
    """A bundle that passes pictures on."""
    path = tmp_path / "same.bundle"
    media.identity((48, 64, 3)).save(path)
    return path


@pytest.fixture
def video(tmp_path: Path) -> Path:
    return media.write(tmp_path / "in.mkv", list(media.noise(12)))


def test_a_video_through_a_pipeline_into_all_sinks(command: Any, identity: Path, video: Path, tmp_path: Path) -> None:
    pytest.importorskip("rosbags")
    sinks = [
        f"{tmp_path / 'out.mkv'}?codec=ffv1",
        f"bag:{tmp_path / 'bag'}",
        tmp_path / "out.jsonl",
        tmp_path / "out.npz",
    ]
    result = command("run", identity, "--source", video, *(part for sink in sinks for part in ("--sink", sink)))
    assert (result.status, result.err) == (0, "")
    first, second, *outputs = result.out.splitlines()
    assert first.startswith("12 frames, ")
    assert second.startswith("Latency from capture: p50 ")
    assert outputs == [f"Outputs: {sink}" for sink in sinks]
    with np.load(tmp_path / "out.npz") as archive:
        np.testing.assert_array_equal(archive["y"], media.noise(12))
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["timestamp"] for line in lines] == [number / 25 for number in range(12)]
    repeat = command(
        "run", identity, "--source", f"bag:{tmp_path / 'bag'}", "--sink", f"{tmp_path / 'again.mkv'}?codec=ffv1"
    )
    assert repeat.status == 0
    for name in ("out.mkv", "again.mkv"):
        answer, times = media.read(tmp_path / name)
        np.testing.assert_array_equal(answer, media.noise(12))
        assert times == [number / 25 for number in range(12)]


def test_pictures_are_prepared_in_a_stage_of_its_own(command: Any, bundle: Path, video: Path, tmp_path: Path) -> None:
    options = ["--resize", "letterbox", "--mean", "0.5", "--std", "0.5", "--frames", 5, "--json"]
    result = command("run", bundle, "--source", video, "--sink", f"{tmp_path / 'out.mp4'}?show=label", *options)
    assert (result.status, result.err) == (0, "")
    answer = json.loads(result.out)
    assert [stage["name"] for stage in answer["stages"]] == ["prepare", "stage0", "stage1"]
    assert (answer["delivered"], answer["passed_over"]) == (5, 0)
    assert 0 < answer["capture_latency_s"]["p50"] <= answer["capture_latency_s"]["p99"]
    assert len(media.read(tmp_path / "out.mp4")[0]) == 5


@pytest.mark.parametrize("sink", ["-", "jsonl:-"])
def test_lines_on_standard_output_stand_alone(command: Any, bundle: Path, frames: Path, sink: str) -> None:
    result = command("run", bundle, "--input", frames, "--sink", sink)
    assert result.status == 0
    assert [len(json.loads(line)["outputs"]) for line in result.out.splitlines()] == [1] * 6
    assert result.err.startswith("6 frames, ")
    result = command("run", bundle, "--input", frames, "--sink", sink, "--json")
    assert [len(json.loads(line)["outputs"]) for line in result.out.splitlines()] == [1] * 6
    assert json.loads(result.err)["delivered"] == 6


def test_what_is_live_takes_the_newest_frame(command: Any, identity: Path) -> None:
    result = command("run", identity, "--source", "pattern:64x48@1000", "--frames", 50, "--json")
    answer = json.loads(result.out)
    assert result.status == 0
    assert answer["submitted"] + answer["passed_over"] == 50
    assert answer["delivered"] + sum(answer["dropped"].values()) == answer["submitted"]
    assert set(answer["dropped"]) <= {"replaced"}


def test_a_new_version_of_the_bundle_takes_over(command: Any, identity: Path, tmp_path: Path) -> None:
    folder = tmp_path / "versions"
    folder.mkdir()

    def bring() -> None:
        media.identity((48, 64, 3)).save(folder / "v2")

    timer = threading.Timer(1.0, bring)
    timer.start()
    line = ("run", identity, "--source", "pattern:64x48@30", "--frames", 150, "--watch", folder, "--shadow", 2)
    result = command(*line, "--most-slower", 1000, "--json")
    timer.join()
    assert result.status == 0, result.err
    facts = json.loads(result.out)
    assert facts["updates"] == {"applied": 1, "refused": 0, "rolled_back": 0}
    assert facts["failed"] == 0


def test_a_deadline_that_cannot_be_met(command: Any, identity: Path) -> None:
    options = ["--fps", 200, "--admission", "deadline", "--deadline", "1e-9", "--frames", 20]
    result = command("run", identity, "--source", "pattern:64x48", *options)
    assert result.status == 0
    assert result.out.startswith("0 frames, ")
    assert "20 dropped (late)" in result.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--source", "pattern:64x48@30", "--watch", "/nowhere"], "--watch '/nowhere' is no folder"),
        (["--source", "pattern:64x48", "--source", "x", "--trace", "x"], "--trace is for one source; 2 are given"),
        (["--source", "pattern:64x48", "--source", "missing", "--sink", "x.mp4"], r"put {stream} into 'x.mp4'"),
        (["--source", "pattern:64x48", "--source", "missing", "--stage-timeout", "a=1"], "one limit for all stages"),
        (["--input", "a.npy", "--input", "b.npy"], "--input is given twice"),
        (["--source", "missing.mp4"], "no source at 'missing.mp4': there is no such file"),
        (["--source", "missing"], "no source at 'missing'; supported are camera:/dev/video0"),
        (["--source", "camera:/dev/no-camera"], "no such file"),
        (["--source", "camera:/dev/no-camera?rate=30"], "has the option 'rate'"),
        (["--source", "rtsp://127.0.0.1:1/x"], "cannot open 'rtsp://127.0.0.1:1/x'"),
        (["--source", "rtsp://127.0.0.1:1/x", "--fps", "30"], "its pace is its own"),
        (["--source", "bag:missing"], "no source at 'bag:missing'"),
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
        (["--source", "pattern:64x48", "--sink", "out.mp4?show=boxes"], "takes rows of left, top, right, bottom"),
        (["--source", "pattern:64x48", "--sink", "out.mp4?show=label"], "which is no classifier's"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_line(command: Any, identity: Path, arguments: list[str], message: str) -> None:
    result = command("run", identity, *arguments)
    assert (result.status, result.out) == (2, "")
    assert message in result.err
    assert result.err.count("\n") == 1


def test_a_new_version_with_another_card_is_refused(command: Any, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    graph = pipeline.read(detectors.save_detector(tmp_path / "cells.onnx"))
    card, plan = pipeline.ModelCard(decoder="yolox", labels=["cat"]), pipeline.plan(graph)
    pipeline.build(graph, plan, card=card).save(tmp_path / "first")
    (tmp_path / "versions").mkdir()
    second = pipeline.build(graph, plan, card=msgspec.structs.replace(card, labels=("dog",)))
    timer = threading.Timer(1.0, lambda: second.save(tmp_path / "versions" / "v2"))
    timer.start()
    line = ("run", tmp_path / "first", "--source", "pattern:64x64@30", "--frames", 120, "--json")
    result = command(*line, "--watch", tmp_path / "versions")
    timer.join()
    assert result.status == 0, result.err
    assert json.loads(result.out)["updates"] == {"applied": 0, "refused": 1, "rolled_back": 0}
