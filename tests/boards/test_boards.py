"""The boards that come along are possible, can be compiled for, and come along in a package."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import boards
from pipeline.core import board_file
from pipeline.core.board import Board, Device
from pipeline.errors import BoardError
from pipeline.executor.targets import check

NAMES = [name for name in boards.names() if name != boards.HOST]


def test_the_boards_of_the_readme_come_along() -> None:
    reference = {"jetson-nano", "jetson-orin-nano", "kv260", "pynq-z2", "raspberry-pi-4", "raspberry-pi-5", "rk3588"}
    assert boards.names()[0] == "host"
    assert reference | {"ultra96", "ultra96-simulated", "zcu104"} == set(NAMES)


@pytest.mark.parametrize("name", [*NAMES, boards.EXAMPLE])
def test_each_board_is_possible_and_has_targets_that_tvm_takes(name: str) -> None:
    board = boards.get(name)
    assert board.name == name
    assert board.about
    # What is simulated runs on this machine, whatever that is.
    assert all(device.target for device in board.devices) or name in ("ultra96-simulated", "kv260")
    check(board, name)


@pytest.mark.parametrize("name", NAMES)
def test_no_number_of_a_board_that_nobody_measured_here_is_called_measured(name: str) -> None:
    board = boards.get(name)
    assert not any(device.measured for device in board.devices)
    assert not any(link.measured for link in board.links)


@pytest.mark.parametrize("name", NAMES)
def test_every_pair_of_memories_is_linked(name: str) -> None:
    board = boards.get(name)
    for first in board.devices:
        for second in board.devices:
            assert board.transfer_s(first, second, 1 << 20) > 0


def test_the_example_shows_every_key() -> None:
    text = boards.board_path(boards.EXAMPLE).read_text(encoding="utf-8")
    for field in Device.__dataclass_fields__:
        assert f"\n{field} = " in text or f"\n# {field} = " in text or f"[[devices.{field}]]" in text


def test_the_files_are_package_data(root: Path) -> None:
    text_values = msgspec.toml.decode((root / "pyproject.toml").read_bytes())
    assert text_values["tool"]["setuptools"]["package-data"]["boards"] == ["*.toml"]


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
