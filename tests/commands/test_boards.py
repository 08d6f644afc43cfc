"""``boards``, ``devices`` and ``profile``: what there is, what is here, and what it costs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import boards
from pipeline import board_file
from pipeline.board import Cluster
from pipeline.commands import devices
from pipeline.executor import profile as bench
from pipeline.executor.present import Accelerator


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "ENOUGH_S", 0.0)


def test_boards_are_listed(command: Any) -> None:
    done = command("boards")
    assert (done.status, done.err) == (0, "")
    assert all(name in done.out for name in boards.names())
    found = json.loads(command("boards", "--json").out)
    assert [each["name"] for each in found] == boards.names()


def test_one_board_is_shown_in_full(command: Any) -> None:
    done = command("boards", "rk3588")
    assert done.status == 0
    for expected in ("cortex-a76 +dotprod", "little (0, 1, 2, 3), speed 0.29", "19.0 GB/s", "estimated", "4.5 to 11 W"):
        assert expected in done.out
    assert "shared" not in done.out
    done = command("boards", "ultra96")
    for expected in ("convolution, matmul, elementwise", "int8, int32", "host - vta", "1.00 GB/s", "20.0 us"):
        assert expected in done.out
    assert json.loads(command("boards", "ultra96", "--json").out)["devices"][1]["kind"] == "vta"


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
    done = command("boards", *arguments)
    assert (done.status, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert re.search(message, done.err)


def test_a_wrong_file_is_one_line_wherever_a_board_is_named(command: Any, digits_onnx: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[[devices]]\nname = "cpu"\nflosp = 3')
    for line in (["boards", path], ["plan", digits_onnx, "--board", path], ["profile", digits_onnx, "--board", path]):
        done = command(*line)
        assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
        assert "mine.toml: unknown key 'devices[0].flosp'" in done.err


# Devices.


def test_devices_of_this_machine(command: Any) -> None:
    done = command("devices")
    assert (done.status, done.err) == (0, "")
    assert "cpu" in done.out
    found = json.loads(command("devices", "--json").out)
    assert found["devices"][0]["cores"] == list(boards.get("host").devices[0].cores)
    assert found["devices"][0]["driven"]
    assert {each["kind"] for each in found["devices"]} | set(found["absent"]) == {"cpu", "cuda", "opencl", "vulkan"}


def test_unlike_cores_and_accelerators_are_told(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated: a machine with two kinds of core, two NUMA nodes, and a GPU that nothing drives yet."""
    gpu = devices.Found("opencl0", "opencl", "Mali-G610", (), (), 4 << 30, driven=False)
    clusters = (Cluster("big", (1,)), Cluster("little", (0,), 0.5))
    cpu = devices.Found("cpu", "cpu", "board", (1, 0), clusters, 8 << 30, driven=True)
    machine = devices.Machine((cpu, gpu), ("cuda",), (), ((0, 1),), {0: (0,), 1: (1,)})
    monkeypatch.setattr(devices, "look", lambda: machine)
    out = command("devices").out
    for expected in ("big 1, speed 1; little 0, speed 0.5", "no: TVM finds it", "threads of one core", "NUMA node 1"):
        assert expected in out
    assert not Accelerator("opencl", 0, "Mali-G610", 0, 4, 1e9, "").driven


# Profile.


def test_a_model_is_profiled(command: Any, small_onnx: Path) -> None:
    done = command("profile", small_onnx)
    assert (done.status, done.err) == (0, "")
    for expected in ("cpu us", "convolution", "cpu: operators measured", "of one core, measured"):
        assert expected in done.out
    first = json.loads(command("profile", small_onnx, "--json").out)
    assert first == json.loads(command("profile", small_onnx, "--json").out)
    assert all(each["measured"]["cpu"] and each["seconds"]["cpu"] > 0 for each in first["groups"])
    assert all(each["crowded_seconds"]["cpu"] > 0 for each in first["groups"])
    several = len(first["board"]["devices"][0]["cores"]) > 1
    assert ("times as long while its other cores are busy" in done.out) == several
    again = json.loads(command("profile", small_onnx, "--json", "--fresh").out)
    assert len(again["groups"]) == len(first["groups"])


def test_an_absent_board_is_estimated_and_says_so(command: Any, digits_onnx: Path) -> None:
    done = command("profile", digits_onnx, "--board", "pynq-z2", "--all")
    assert done.status == 0
    for expected in (
        "cpu: operators estimated: is built for armv7l",
        "vta: operators estimated",
        "cannot",
        "estimated",
    ):
        assert expected in done.out
    found = json.loads(command("profile", digits_onnx, "--board", "pynq-z2", "--json").out)
    assert set(found["estimated"]) == {"cpu", "vta"}
    assert all(each["seconds"]["vta"] is None and not each["measured"]["vta"] for each in found["groups"])


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
