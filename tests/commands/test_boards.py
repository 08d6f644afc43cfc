"""``boards``, ``devices`` and ``profile``: what there is, what is here, and what it costs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import boards
from boards import published
from pipeline.commands import devices
from pipeline.core.board import board_file
from pipeline.core.board.board import Cluster

pytestmark = pytest.mark.thorough


def test_boards_are_listed(command: Any) -> None:
    result = command("boards")
    assert (result.status, result.err) == (0, "")
    assert all(name in result.out for name in boards.names())
    answer = json.loads(command("boards", "--json").out)
    assert [each["name"] for each in answer] == boards.names()


def test_one_board_is_shown_in_full(command: Any) -> None:
    result = command("boards", "rk3588")
    assert result.status == 0
    for expected in (
        "cortex-a76 +dotprod",
        "little (0, 1, 2, 3), speed 0.",
        "cortex-a55",
        "19.0 GB/s",
        "estimated",
        "4.5 to 11 W",
    ):
        assert expected in result.out
    assert "shared" not in result.out
    result = command("boards", "ultra96")
    for expected in ("convolution, matmul, elementwise", "int8, int32", "host - vta", "1.00 GB/s", "20.0 us"):
        assert expected in result.out
    assert json.loads(command("boards", "ultra96", "--json").out)["devices"][1]["kind"] == "vta"
    assert "vta ultra96 0.0.1 simulated" in command("boards", "ultra96-simulated").out
    assert "simulated" not in result.out


def test_published_figures_of_a_board_are_listed(command: Any, tmp_path: Path) -> None:
    expected = published.figures("raspberry-pi-4")
    result = command("boards", "raspberry-pi-4")
    assert (result.status, result.err) == (0, "")
    for figure in expected:
        assert figure.source in result.out
        assert f"{1 / figure.seconds:.4g}" in result.out
    answer = json.loads(command("boards", "raspberry-pi-4", "--json").out)
    assert [figure["model"] for figure in answer["published"]] == [figure.model for figure in expected]
    # A file of one's own is another board.
    path = tmp_path / "raspberry-pi-4.toml"
    text = boards.board_path("raspberry-pi-4").read_text()
    text = "\n".join(line for line in text.splitlines() if not line.startswith("accuracy"))
    path.write_text(f"{text}\naccuracy = {{ figures = 9, low = 0.7, high = 1.25 }}\n")
    result = command("boards", path)
    assert "0.70 to 1.25 times the predicted rate" in result.out
    assert "90 % of 9 figures" in result.out
    assert "Published figures" not in result.out


def test_a_boards_file_starts_ones_own(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(command("boards", "raspberry-pi-5", "--toml").out)
    assert board_file.read(path).devices == boards.get("raspberry-pi-5").devices
    assert "A board of your own" in command("boards", "--toml").out
    assert "mine: Raspberry Pi 5" in command("boards", path).out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hots"], "unknown board 'hots'; known are .*; did you mean 'host'"),
        (["no.toml"], "cannot read the board 'no.toml'"),
        (["host", "--toml"], "'host' has no file"),
        (["hots", "--toml"], "unknown board 'hots'"),
    ],
)
def test_unknown_boards_are_one_line(command: Any, arguments: list[str], message: str) -> None:
    result = command("boards", *arguments)
    assert (result.status, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert re.search(message, result.err)


def test_a_wrong_file_is_one_line_wherever_a_board_is_named(command: Any, digits_onnx: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[[devices]]\nname = "cpu"\nflosp = 3')
    for line in (["boards", path], ["plan", digits_onnx, "--board", path], ["profile", digits_onnx, "--board", path]):
        result = command(*line)
        assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
        assert "mine.toml: unknown key 'devices[0].flosp'" in result.err


# Devices.


def test_devices_of_this_machine(command: Any) -> None:
    result = command("devices")
    assert (result.status, result.err) == (0, "")
    assert "cpu" in result.out
    answer = json.loads(command("devices", "--json").out)
    assert answer["devices"][0]["cores"] == list(boards.get("host").devices[0].cores)
    assert {each["kind"] for each in answer["devices"]} | set(answer["absent"]) == {"cpu", "cuda"}


def test_unlike_cores_and_accelerators_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Simulated: a machine with two kinds of core, two NUMA nodes, and a GPU."""
    gpu = devices.PresentDevice("cuda0", "cuda", "Orin 8.7", (), (), 4 << 30)
    clusters = (Cluster("big", (1,)), Cluster("little", (0,), 0.5))
    cpu = devices.PresentDevice("cpu", "cpu", "board", (1, 0), clusters, 8 << 30)
    machine = devices.Machine(
        (cpu, gpu),
        {"dsp": "no driver"},
        {"ONNX Runtime 1.31": ("CPUExecutionProvider",)},
        (),
        ((0, 1),),
        {0: (0,), 1: (1,)},
    )
    devices.show(machine)
    out = capsys.readouterr().out
    for expected in (
        "big 1, speed 1; little 0, speed 0.5",
        "Orin 8.7",
        "Not found: dsp (no driver)",
        "ONNX Runtime 1.31: CPUExecutionProvider",
        "threads of one core",
        "NUMA node 1",
    ):
        assert expected in out


# Profile.


def test_a_model_is_profiled(command: Any, small_onnx: Path) -> None:
    # Measured once: the times that `--fresh` measures anew are those that later calls find in the cache.
    result = command("profile", small_onnx, "--fresh")
    assert (result.status, result.err) == (0, "")
    for expected in ("cpu us", "convolution", "cpu: operators measured", "of one core, measured"):
        assert expected in result.out
    first = json.loads(command("profile", small_onnx, "--json").out)
    assert first == json.loads(command("profile", small_onnx, "--json").out)
    assert all(each["measured"]["cpu"] and each["seconds"]["cpu"] > 0 for each in first["groups"])
    assert all(each["contended_seconds"]["cpu"] > 0 for each in first["groups"])
    has_several_cores = len(first["board"]["devices"][0]["cores"]) > 1
    assert ("times as long while its other cores are busy" in result.out) == has_several_cores


@pytest.mark.slow
def test_a_fresh_profile_measures_again(command: Any, small_onnx: Path) -> None:
    first, second = (json.loads(command("profile", small_onnx, "--json", "--fresh").out) for _ in range(2))
    assert len(first["groups"]) == len(second["groups"])
    assert first["groups"] != second["groups"]


def test_a_vendors_profile_is_kept(
    command: Any, digits_onnx: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOC_PIPELINE_CACHE", str(tmp_path))
    path = tmp_path / "hailo.csv"
    path.write_text("net_name,fps,hw_only_fps\ndigits,250,251\n")
    arguments = ("profile", digits_onnx, "--board", "rk3588")
    result = command(*arguments, "--device", "npu0", "--import", path)
    assert (result.status, result.err) == (0, "")
    assert "npu0: 4 ms a frame by hailortcli run --csv or benchmark, divided as the estimates are." in result.out
    shown = command(*arguments)
    assert "npu2: operators measured by hailortcli" in shown.out
    answer = json.loads(command(*arguments, "--json").out)
    assert answer["estimated"].keys() == {"cpu"}
    assert sum(group["seconds"]["npu1"] for group in answer["groups"]) == pytest.approx(0.004)
    plan = command("plan", digits_onnx, "--board", "rk3588", "--measure", "--devices", "npu1", "--json")
    assert json.loads(plan.out)["stages"][0]["seconds"] >= 0.004
    for options, message in (
        (["--board", "jetson-orin-nano", "--import", tmp_path / "none"], "cannot read the profile"),
        (["--board", "raspberry-pi-5", "--import", path], "say by --device which device of 'raspberry-pi-5'"),
        (["--device", "cpu"], "--device is for --import"),
        (["--board", "rk3588", "--device", "tpu", "--import", path], "tpu"),
    ):
        failed = command("profile", digits_onnx, *options)
        assert (failed.status, message in failed.err) == (2, True), failed.err


def test_an_absent_board_is_estimated_and_says_so(command: Any, digits_onnx: Path) -> None:
    result = command("profile", digits_onnx, "--board", "pynq-z2", "--all")
    assert result.status == 0
    for expected in (
        "cpu: operators estimated: is built for armv7l",
        "vta: operators estimated",
        "cannot",
        "estimated",
    ):
        assert expected in result.out
    answer = json.loads(command("profile", digits_onnx, "--board", "pynq-z2", "--json").out)
    assert set(answer["estimated"]) == {"cpu", "vta"}
    assert all(each["seconds"]["vta"] is None and not each["measured"]["vta"] for each in answer["groups"])


@pytest.mark.slow
def test_a_damaged_cache_is_measured_again(
    command: Any, small_onnx: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOC_PIPELINE_CACHE", str(tmp_path))
    command("profile", small_onnx)
    for path in tmp_path.rglob("*.json"):
        path.write_bytes(b"{")
    with pytest.warns(RuntimeWarning, match="it is measured again"):
        assert command("profile", small_onnx).status == 0
    assert all(json.loads(path.read_bytes())["seconds"] > 0 for path in tmp_path.rglob("*.json"))
