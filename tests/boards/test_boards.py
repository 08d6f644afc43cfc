"""The boards that come along are possible, can be compiled for, and come along in a package."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

import boards
import pipeline
from pipeline.core.board import board_file
from pipeline.core.board.board import Board, Device
from pipeline.core.board.transfer_costs import enter_s, leave_s
from pipeline.errors import BoardError
from pipeline.executor.devices import adapter
from pipeline.executor.targets import check
from tests.support.onnx_models import node, save

NAMES = [name for name in boards.names() if name != boards.HOST]


def test_the_boards_of_the_readme_come_along() -> None:
    reference = {
        "imx93",
        "jetson-nano",
        "jetson-orin-nano",
        "jetson-orin-nx",
        "kv260",
        "nuc",
        "pynq-z2",
        "raspberry-pi-3b-plus",
        "raspberry-pi-4",
        "raspberry-pi-5",
        "raspberry-pi-zero-2w",
        "rk3566",
        "rk3588",
    }
    variants = {"jetson-orin-nano-super", "raspberry-pi-4-1800"}
    with_npus = {
        "coral-dev-board", "raspberry-pi-5-edge-tpu", "raspberry-pi-5-hailo", "raspberry-pi-5-hailo8", "rk3588-rocket",
    }  # fmt: skip
    assert boards.names()[0] == "host"
    assert reference | variants | with_npus | {"ultra96", "ultra96-simulated", "zcu104"} == set(NAMES)


@pytest.mark.parametrize("name", [*NAMES, boards.EXAMPLE])
def test_each_board_is_possible_and_has_targets_that_tvm_takes(name: str) -> None:
    board = boards.get(name)
    assert board.name == name
    assert board.about
    # What is simulated runs on this machine, whatever that is.
    assert all(device.target for device in board.devices) or name == "ultra96-simulated"
    check(board, name)


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("jetson-orin-nano", "gpu"),
        ("jetson-orin-nx", "gpu"),
        ("nuc", "gpu"),
        ("nuc", "npu"),
        ("raspberry-pi-5-hailo", "npu"),
        ("raspberry-pi-5-hailo8", "npu"),
        ("rk3566", "npu"),
        ("rk3588", "npu2"),
    ],
)
def test_a_network_of_floats_may_run_on_each_accelerator(name: str, device: str, digits_onnx: Path) -> None:
    plan = pipeline.plan(pipeline.read(digits_onnx), board=name, devices=[device])
    assert [stage.device for stage in plan.stages] == [device]


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("coral-dev-board", "tpu"),
        ("imx93", "npu"),
        ("raspberry-pi-5-edge-tpu", "tpu"),
        ("rk3566", "npu"),
        ("rk3588", "npu0"),
        ("rk3588-rocket", "npu"),
    ],
)
def test_a_network_of_bytes_may_run_on_each_accelerator(name: str, device: str, tmp_path: Path) -> None:
    constants = {
        "xs": np.float32(0.02), "xz": np.uint8(128), "w": np.full((256, 256, 3, 3), 3, np.int8), "ws": np.float32(0.01),
        "wz": np.int8(0), "ys": np.float32(0.05), "yz": np.uint8(128),
    }  # fmt: skip
    convolution = node("QLinearConv", "x xs xz w ws wz ys yz", "y", "convolution", pads=[1, 1, 1, 1])
    values = {name: np.asarray(value) for name, value in constants.items()}
    model = save(
        tmp_path / "m.onnx", [convolution], {"x": (1, 256, 32, 32)}, ["y"], values, dtypes={"x": 2, "y": 2}
    )  # fmt: skip
    plan = pipeline.plan(pipeline.read(model), board=name, devices=[device])
    assert [stage.device for stage in plan.stages] == [device]


@pytest.mark.parametrize("name", NAMES)
def test_no_number_of_a_board_that_nobody_measured_here_is_called_measured(name: str) -> None:
    board = boards.get(name)
    assert not any(device.measured for device in board.devices)
    assert not any(link.measured for link in board.links)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.one_in(3)
def test_every_board_has_the_power_of_its_devices(name: str, digits_onnx: Path) -> None:
    board = boards.get(name)
    assert all(device.watts_busy > device.watts_idle for device in board.devices)
    plan = pipeline.plan(pipeline.read(digits_onnx), board=board, objective="energy")
    least_power = pipeline.plan(pipeline.read(digits_onnx), board=board)
    assert 0 < joules(plan) <= joules(least_power) * (1 + 1e-9)


def joules(plan: pipeline.Plan) -> float:
    """Return the energy of a frame above rest, of stages that are cores of a device or all of it."""
    devices = [plan.board.device(stage.device) for stage in plan.stages]
    shares = [
        sum(map(device.speed, stage.cores)) / stage.replicas / sum(map(device.speed, device.cores))
        if stage.cores
        else 1
        for stage, device in zip(plan.stages, devices, strict=True)
    ]
    return sum(
        stage.seconds * share * (device.watts_busy - device.watts_idle)
        for stage, share, device in zip(plan.stages, shares, devices, strict=True)
    )


@pytest.mark.parametrize(
    ("fast", "slow"), [("jetson-orin-nano-super", "jetson-orin-nano"), ("raspberry-pi-4-1800", "raspberry-pi-4")]
)
def test_a_variant_is_the_same_board_but_faster(fast: str, slow: str) -> None:
    for device, slower in zip(boards.get(fast).devices, boards.get(slow).devices, strict=True):
        assert (device.name, device.kind, device.cores, device.target) == (
            slower.name, slower.kind, slower.cores, slower.target,
        )  # fmt: skip
        assert device.flops > slower.flops
        assert device.watts_busy > slower.watts_busy


@pytest.mark.parametrize("name", NAMES)
def test_the_runtimes_of_its_cores_are_driven_and_ncnn_is_one(name: str) -> None:
    board = boards.get(name)
    for device in board.devices:
        assert all(adapter(board.device(variant).kind) for variant in device.variants)
        # There are wheels for these two.
        if str((device.target or {}).get("mtriple")).startswith(("aarch64", "x86_64")):
            assert "ncnn" in device.runtimes


@pytest.mark.parametrize("name", NAMES)
def test_every_pair_of_memories_is_linked(name: str) -> None:
    board = boards.get(name)
    for first in board.devices:
        for second in board.devices:
            # Between two other memories, tensors pass the caller's.
            assert leave_s(board, first, second, 1 << 20) + enter_s(board, first, second, 1 << 20) > 0


def test_the_example_shows_every_key() -> None:
    text = boards.board_path(boards.EXAMPLE).read_text(encoding="utf-8")
    for field in Device.__dataclass_fields__:
        assert f"\n{field} = " in text or f"\n# {field} = " in text or f"[[devices.{field}]]" in text


def test_the_files_are_package_data(root: Path) -> None:
    text_values = msgspec.toml.decode((root / "distributions/runtime/pyproject.toml").read_bytes())
    patterns = text_values["tool"]["setuptools"]["package-data"]["boards"]
    packaged = {path for pattern in patterns for path in (root / "boards").glob(pattern)}
    assert packaged == set((root / "boards").rglob("*.toml"))


# A user's own.


def test_a_file_is_a_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text('[[devices]]\nname = "cpu"')
    reference = Board("mine", (Device("cpu"),))
    assert boards.get(str(tmp_path / "mine.toml")) == reference
    monkeypatch.chdir(tmp_path)
    assert boards.get("mine.toml") == reference
    assert boards.get("./mine.toml") == reference


def test_a_copy_of_the_example_is_a_board(tmp_path: Path) -> None:
    path = tmp_path / "copy.toml"
    path.write_bytes(boards.board_path(boards.EXAMPLE).read_bytes())
    assert boards.get(str(path)) == boards.get(boards.EXAMPLE)


@pytest.mark.parametrize("name", ["hots", "Host", "ultra69", ""])
def test_an_unknown_board_is_refused(name: str) -> None:
    with pytest.raises(BoardError, match=r"unknown board .*; known are host, .*, and TOML files"):
        boards.get(name)
    with pytest.raises(BoardError, match="did you mean 'ultra96'"):
        boards.get("ultra69")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            '{ kind = "llvm", mtriple = "aarch64-linux-gnu", mcpu = "cortex-a7x" }',
            "no processor 'cortex-a7x'.*'cortex-a7",
        ),
        ('{ kind = "lvm" }', "device 'cpu': TVM does not take its target: .*lvm"),
        ('{ kind = "llvm", mcpu = 7 }', "device 'cpu': TVM does not take its target"),
        ("{ }", "device 'cpu': TVM does not take its target"),
    ],
)
def test_a_target_that_tvm_does_not_take_is_refused(tmp_path: Path, target: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'[[devices]]\nname = "cpu"\ntarget = {target}')
    with pytest.raises(BoardError, match=rf"mine\.toml: .*{message}"):
        boards.get(str(path))


def test_a_board_is_its_file_again() -> None:
    """A board goes through a plan's JSON unharmed, with all its fields."""
    for name in NAMES:
        board = boards.get(name)
        assert msgspec.json.decode(msgspec.json.encode(board), type=Board) == board
        assert board_file.from_table(msgspec.to_builtins(board)) == board
