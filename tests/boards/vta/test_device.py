"""The simulator is asked for by a key of the target, whatever the device is called."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import boards
from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import StagePlan, TensorSpec
from pipeline.errors import BoardError, MissingExtra
from pipeline.executor import devices, targets
from pipeline.executor.build import compile_stage, runs_here
from tests.support.relay_programs import import_program, result

TARGET = {"kind": "vta", "board": "ultra96", "version": "0.0.1"}
SIMULATED = Device("npu", "vta", target={**TARGET, "simulated": True})
SPARE = Device("vta_simulated_spare", "vta", target=TARGET)
HARDWARE_IS_HERE = importlib.util.find_spec("pynq") is not None

IMAGE = np.arange(-128, 128).astype(np.int8).reshape(1, 16, 4, 4)
POOL = "(%x: Tensor[(1, 16, 4, 4), int8]) { nn.max_pool2d(%x, pool_size=[2, 2], strides=[2, 2]) }"
STAGE = StagePlan(
    "pool",
    SPARE.name,
    inputs=(TensorSpec("x", (1, 16, 4, 4), "int8"),),
    outputs=(TensorSpec("y", (1, 16, 2, 2), "int8"),),
)


def test_a_device_is_simulated_by_its_key_and_not_by_its_name() -> None:
    assert runs_here(SIMULATED)
    assert runs_here(SPARE) == HARDWARE_IS_HERE
    assert runs_here(replace(SPARE, target={**TARGET, "simulated": False})) == HARDWARE_IS_HERE


def test_a_simulated_device_computes_whatever_it_is_called() -> None:
    runtime = devices.create(SIMULATED)
    program = runtime.load(STAGE, compile_stage(import_program(POOL).module, SIMULATED))
    (output,) = runtime.run(program, [IMAGE])
    runtime.close()
    np.testing.assert_array_equal(output, result(POOL, {"x": IMAGE}))


@pytest.mark.skipif(HARDWARE_IS_HERE, reason="a board's own library is here")
def test_a_device_without_the_key_is_a_board_and_the_error_says_how_to_simulate() -> None:
    runtime = devices.create(SPARE)
    code = compile_stage(import_program(POOL).module, SPARE)
    remedy = "device 'vta_simulated_spare': driving VTA: needs pynq; .* 'simulated = true' in its target simulates it"
    with pytest.raises(MissingExtra, match=remedy):
        runtime.load(STAGE, code)


@pytest.mark.parametrize("value", ["true", 1, None])
def test_a_key_that_is_no_boolean_is_refused(value: Any) -> None:
    board = Board("b", (replace(SIMULATED, target={**TARGET, "simulated": value}),))
    with pytest.raises(BoardError, match=rf"b\.toml: device 'npu': .* simulated = {value!r}; it must be true or false"):
        targets.check(board, "b.toml")


def test_the_simulated_board_has_the_key_and_the_others_do_not() -> None:
    def simulated_flags(name: str) -> list[object]:
        return [(device.target or {}).get("simulated") for device in boards.get(name).devices if device.kind == "vta"]

    assert simulated_flags("ultra96-simulated") == [True]
    assert all(simulated_flags(name) == [None] for name in ("ultra96", "zcu104", "kv260", "pynq-z2"))
