"""Odd files, numbers and names end in one clear error, and soon."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pipeline
from pipeline.core.board import board_file
from pipeline.core.plan.plan import Plan
from pipeline.errors import BoardError, ModelError, PipelineError, PlanError
from tests.support.onnx_models import node, save
from tests.support.relay_programs import HEADER
from tests.support.time_limits import time_limit

DIGITS = "9" * 5000
"""More than Python reads as a number."""

RELAY = f"{HEADER}\ndef @main(%a: Tensor[(1, 4), float32]) {{ add(%a, 1f) }}"
READERS: dict[str, Callable[[Path], Any]] = {
    "model": pipeline.read,
    "parameters": lambda path: pipeline.read(save_relay(path.parent), params=path),
    "board": board_file.read,
    "plan": Plan.load,
}


def save_relay(folder: Path) -> Path:
    (folder / "program.relay").write_text(RELAY)
    return folder / "program.relay"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
@pytest.mark.parametrize("kind", READERS)
def test_a_pipe_is_no_file(tmp_path: Path, kind: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with time_limit(30), pytest.raises(PipelineError, match=r"pipe.*(a pipe or a device, not a file|Invalid argument)"):
        READERS[kind](tmp_path / "pipe")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no device of zeros here")
@pytest.mark.parametrize("kind", ["model", "board", "plan"])
def test_a_device_is_no_file(kind: str) -> None:
    with time_limit(30), pytest.raises(PipelineError, match="/dev/zero"):
        READERS[kind](Path("/dev/zero"))


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("m.relay", RELAY.replace("(1, 4)", f"(1, {DIGITS})")),
        ("m.relay", RELAY.replace("1f", DIGITS)),
        ("m.relay", RELAY.replace("add(%a, 1f)", f"reshape(%a, newshape=[{DIGITS}])")),
        ("m.relay", RELAY.replace("1f", f"meta[relay.Constant][{DIGITS}]")),
        ("m.json", f'{{"root": {DIGITS}, "nodes": [{{"type_key": ""}}]}}'),
        ("m.json", f'{{"root_index": {DIGITS}, "nodes": [{{"type": "x"}}]}}'),
    ],
    ids=["extent", "literal", "attribute", "constant", "Relay JSON", "Relax JSON"],
)
def test_numbers_of_thousands_of_digits(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(ModelError):
        pipeline.read(tmp_path / file)


def test_such_numbers_in_a_board_and_a_plan(tmp_path: Path) -> None:
    (tmp_path / "board.toml").write_text(f"cores = {DIGITS}\n")
    with pytest.raises(BoardError, match="not a TOML file"):
        board_file.read(tmp_path / "board.toml")
    (tmp_path / "plan.json").write_text(f'{{"format": {DIGITS}}}')
    with pytest.raises(PlanError, match="not a plan"):
        Plan.load(tmp_path / "plan.json")


@pytest.mark.parametrize("name", ["input0", "output", "tensor", "node00"])
def test_names_that_are_no_utf8(tmp_path: Path, name: str) -> None:
    nodes = [node("Relu", "input0", "tensor", "node00"), node("Neg", "tensor", "output")]
    path = save(tmp_path / "m.onnx", nodes, {"input0": (2,)}, ["output"])
    path.write_bytes(path.read_bytes().replace(name.encode(), name[:-2].encode() + b"\xff\xfe"))
    with pytest.raises(ModelError, match=r"is no UTF-8|not a valid ONNX model"):
        pipeline.read(path)
