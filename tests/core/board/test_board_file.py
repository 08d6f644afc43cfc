"""A board's file is its fields; what is wrong in it is named, with the key."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.board.board import Accuracy, Board, Cluster, Device, Link
from pipeline.core.board.board_file import decode, from_table, read
from pipeline.errors import BoardError

WHOLE = """
[[devices]]
name = "cpu"
target = { kind = "llvm", mcpu = "cortex-a72" }
flops = 3
[[devices.clusters]]
name = "big"
cores = [2, 3]
[[devices]]
name = "gpu"
kind = "cuda"
memory = "gpu"
efficiency = { matmul = 0.5 }
measured = ["flops"]
[[links]]
ends = ["host", "gpu"]
bytes_per_s = 1e9
"""


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(WHOLE)
    cpu = Device(
        "cpu",
        target={"kind": "llvm", "mcpu": "cortex-a72"},
        flops=3.0,
        clusters=(Cluster("big", (2, 3)),),
        cores=(2, 3),
    )
    gpu = Device("gpu", "cuda", memory="gpu", efficiency={"matmul": 0.5}, measured=("flops",))
    assert read(path) == Board("mine", (cpu, gpu), (Link(("host", "gpu"), 1e9),))
    path.write_text(f'name = "other"\n{WHOLE}')
    assert read(path).name == "other"


def test_the_accuracy_of_a_device_is_read() -> None:
    board = decode(b'[[devices]]\nname = "a"\naccuracy = { figures = 11, low = 0.73, high = 1.3 }', "b")
    assert board.device("a").accuracy == Accuracy(11, 0.73, 1.3)
    assert board.device("a").with_runtime("onnxruntime").accuracy == Accuracy(11, 0.73, 1.3)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BoardError, match=r"cannot read the board '.*no\.toml': No such file"):
        read(tmp_path / "no.toml")
    with pytest.raises(BoardError, match="Is a directory"):
        read(tmp_path)


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("devices = 3")
    with pytest.raises(BoardError, match=r"mine\.toml: devices: expected array, got int"):
        read(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file: object missing required field devices"),
        ("devices", "not a TOML file: "),
        (b"\xff", "not a TOML file: "),
        ("devices = []", "board 'b' has no devices"),
        ("devices = [3]", r"devices\[0\]: expected object, got int"),
        ('device = 3\n[[devices]]\nname = "a"', "unknown key 'device'; known are .*; did you mean 'devices'"),
        ('[[devices]]\nkind = "cpu"', r"devices\[0\]: object missing required field name"),
        ('[[devices]]\nname = "a"\nflosp = 3', r"unknown key 'devices\[0\]\.flosp'; .*; did you mean 'flops'"),
        ('[[devices]]\nname = "a"\nflops = "3"', r"devices\[0\]\.flops: expected float, got str"),
        ('[[devices]]\nname = "a"\nflops = -3', "device 'a': flops and bytes_per_s must be above 0"),
        ('[[devices]]\nname = "a"\nkind = "cdua"', "kind 'cdua', which nothing drives; .*; did you mean 'cuda'"),
        ('[[devices]]\nname = "a"\ncores = [0.5]', r"devices\[0\]\.cores\[0\]: expected int, got float"),
        ('[[devices]]\nname = "a"\n[[devices.clusters]]\nsped = 1', r"unknown key 'devices\[0\]\.clusters\[0\]\.sped'"),
        ('[[devices]]\nname = "a"\naccuracy = { lo = 1 }', r"unknown key 'devices\[0\]\.accuracy\.lo'; .*mean 'low'"),
        ('[[devices]]\nname = "a"\naccuracy = { low = 1 }', r"devices\[0\]\.accuracy: object missing"),
        ('[[devices]]\nname = "a"\n[[links]]\nends = ["host"]\nbytes_per_s = 1', r"links\[0\]\.ends: expected array"),
        ('[[devices]]\nname = "a"\n[[links]]\nbandwidth = 1', r"unknown key 'links\[0\]\.bandwidth'"),
    ],
    ids=str,
)
def test_what_is_wrong_is_named(text: str | bytes, message: str) -> None:
    with pytest.raises(BoardError, match=message):
        decode(text if isinstance(text, bytes) else text.encode(), "b")


FIELDS = [field.name for field in dataclasses.fields(Device)]
VALUES = st.sampled_from(
    [
        *(
            True,
            -1,
            0,
            1,
            2.5,
            math.nan,
            math.inf,
            "",
            "a",
            "cpu",
            "host",
            [],
            [0],
            [0, 0],
            [1, -1],
            ["host", "gpu"],
            ["a"],
        ),
        *(
            {},
            {"matmul": 1},
            {"name": 1},
            [{"name": "a"}],
            [{"name": "a", "cores": [1]}],
            [{"nix": 0}],
            ["matmul"],
            ["flops"],
        ),
    ]
)
NAMED = st.fixed_dictionaries({"name": st.sampled_from(["a", "b"])})
DEVICES = st.builds(lambda one, two: {**one, **two}, NAMED, st.dictionaries(st.sampled_from([*FIELDS, "nix"]), VALUES))
LINKS = st.dictionaries(st.sampled_from(["ends", "bytes_per_s", "latency_s", "shared", "nix"]), VALUES, max_size=4)


@given(
    st.fixed_dictionaries(
        {"name": VALUES, "devices": VALUES | st.lists(DEVICES, max_size=2)},
        optional={"links": st.lists(LINKS, max_size=2)},
    )
)
def test_whatever_is_written_there_is_a_board_or_an_error(table: dict[str, Any]) -> None:
    try:
        board = from_table(table)
    except BoardError:
        return
    assert [device.name for device in board.devices] == [each["name"] for each in table["devices"]]


@given(st.sampled_from(sorted(FIELDS)), st.integers(0, 20), st.sampled_from("xq_"))
def test_a_misspelt_key_is_named_with_the_right_one(field: str, position: int, letter: str) -> None:
    wrong = field[:position] + letter + field[position:]
    with pytest.raises(BoardError, match=rf"unknown key 'devices\[0\]\.{wrong}'; .*did you mean .*'{field}'"):
        from_table({"name": "b", "devices": [{"name": "a", wrong: 1}]})


@given(st.binary(max_size=40))
def test_no_bytes_crash_the_reader(data: bytes) -> None:
    with pytest.raises(BoardError):
        decode(data, "b")
