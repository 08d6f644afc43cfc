"""Stages for a storm: null, simulated and real ones that compute the same, and fail and hang now and then.

The input has a row for each stage, and a stage adds to its own row what its parameter holds.  So a result says, row by
row, whose parameters its frame has met.  Of a stage with steps it is the first step that adds; the others, which may
borrow a device, add nothing.
"""

from __future__ import annotations

import functools
import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

# Before TVM: its bindings would import it, which takes seconds and serves nothing here.
# ruff: noqa: E402
sys.modules.setdefault("torch", None)  # type: ignore[arg-type]

import numpy as np

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, StepPlan, TensorSpec
from pipeline.executor.bundle import Bundle
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.executor.devices.cpu import CpuRuntime
from pipeline.executor.devices.null import NullRuntime
from pipeline.executor.devices.simulated import SimulatedRuntime
from pipeline.executor.stage_code import StageCode
from pipeline.system.affinity import process_cores
from tests.support.onnx_models import node, save

ROWS = 3
SHAPE = (ROWS, 16)
"""As many columns as make a constant a parameter, and not a part of the code."""

CORES = process_cores()[:2]
BOARD = Board("storm", (Device("null", "null"), Device("simulated", "simulated"), Device("cpu", cores=CORES)))
PARAMETER = "w"


class Weather:
    """The trouble that devices are in, and how many real ones are open.

    Parameters
    ----------
    seed : int
    share : float
        Of the runs that fail or hang for a while.

    Attributes
    ----------
    most_open : int
        Real devices that were ever open at once, in this process.
    """

    most_open = 0
    _open_count = 0
    _lock = threading.Lock()

    def __init__(self, seed: int, share: float) -> None:
        self._random, self._share = random.Random(seed), share

    def strike(self) -> None:
        """Fail, hang for a while, or do nothing."""
        chance = self._random.random()
        if chance < self._share / 3:
            raise ValueError("bad weather")
        if chance < self._share:
            time.sleep(self._random.choice((0.0, 0.002, 0.08)))

    def create(self, device: Device) -> DeviceRuntime:
        """Return the device's runtime."""
        if device.kind == "cpu":
            return RealAdder(device, self)
        return SimulatedAdder(device, self) if device.kind == "simulated" else NullAdder(device, self)

    @classmethod
    def count(cls, number: int) -> None:
        """Note that a real device was opened, or closed."""
        with cls._lock:
            cls._open_count += number
            cls.most_open = max(cls.most_open, cls._open_count)


class NullAdder(NullRuntime):
    """Adds the stage's parameter to the sum of its inputs, in no time."""

    def __init__(self, device: Device, weather: Weather) -> None:
        super().__init__(device)
        self._weather = weather

    def load(self, stage: StagePlan, code: Any) -> Any:
        """Return the parameter."""
        return code.parameters[PARAMETER]

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return a new array."""
        self._weather.strike()
        return [sum(inputs) + program]


class SimulatedAdder(SimulatedRuntime):
    """Does the same in the time that the plan says."""

    def __init__(self, device: Device, weather: Weather) -> None:
        super().__init__(device)
        self._weather = weather

    def load(self, stage: StagePlan, code: Any) -> Any:
        """Return the simulation and the parameter."""
        return super().load(stage, code), code.parameters[PARAMETER]

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return a new array."""
        self._weather.strike()
        super().run(program[0], inputs)
        return [sum(inputs) + program[1]]


class RealAdder(CpuRuntime):
    """Does the same by TVM's kernels."""

    def __init__(self, device: Device, weather: Weather) -> None:
        super().__init__(device)
        self._weather = weather

    def open(self, cores: Sequence[int]) -> None:
        """Count it."""
        self._weather.count(1)
        super().open(cores)

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return a new tensor."""
        self._weather.strike()
        return super().run(program, inputs)

    def close(self) -> None:
        """Count it."""
        super().close()
        self._weather.count(-1)


@functools.cache
def build_kernels(inputs: int, cores: int) -> StageCode:
    """Return the code of a real stage, built once."""
    names = ["x", "z"][:inputs]
    nodes = [node("Add", "x z", "s"), node("Add", "s w", "y")] if inputs == 2 else [node("Add", "x w", "y")]
    with tempfile.TemporaryDirectory() as folder:
        constants = {"w": np.zeros(SHAPE, np.float32)}
        path = save(Path(folder) / "m.onnx", nodes, dict.fromkeys(names, SHAPE), ["y"], constants)
        graph = pipeline.read(path)
    board = Board("built", (Device("cpu", cores=CORES[:cores], flops=1e9, bytes_per_s=1e9),))
    (code,) = pipeline.build(graph, pipeline.plan(graph, board, stages=1), check=False).codes
    assert isinstance(code, StageCode)
    return code


def make_parameter(row: int, version: int) -> np.ndarray:
    """Return the parameter of the stage that adds to `row`."""
    array = np.zeros(SHAPE, np.float32)
    array[row] = version
    return array


def make_bundle(plan: Plan, version: int) -> Bundle:
    """Return a plan's stages, all with parameters of one version."""
    codes = [
        _make_code(unit, make_parameter(row, version if number == 0 else 0))
        for row, stage in enumerate(plan.stages)
        for number, unit in enumerate(stage.units)
    ]
    return Bundle(plan, codes)


def _make_code(unit: StagePlan, parameter: np.ndarray) -> StageCode:
    values = {PARAMETER: parameter}
    if unit.device != "cpu":
        return StageCode(lambda: None, values)
    kernels = build_kernels(len(unit.inputs), len(unit.cores_of(0)))
    # The order of the parameters counts, and not their names.
    return StageCode(kernels.module, values, machine=kernels.machine, features=kernels.features)


def make_plan(chance: random.Random, kinds: Sequence[str]) -> Plan:
    """Return a chain or a diamond, of stages on devices of the kinds at random."""
    length = chance.randint(1, ROWS)
    reads = [["x"], *([f"t{number}"] for number in range(length - 1))]
    if chance.random() < 0.3:
        reads = [["x"], ["x"], ["t0", "t1"]]
    makes = [*(f"t{number}" for number in range(len(reads) - 1)), "y"]
    stages = tuple(
        _make_stage(f"s{number}", names, outputs, chance.choice(kinds), chance)
        for number, (names, outputs) in enumerate(zip(reads, makes, strict=True))
    )
    return Plan("storm", "", BOARD, (_spec("x"),), (_spec("y"),), stages)


def _make_stage(name: str, reads: Sequence[str], makes: str, kind: str, chance: random.Random) -> StagePlan:
    cores = CORES[: chance.choice((1, 2))] if kind == "cpu" else ()
    replicas = 2 if len(cores) != 1 and chance.random() < 0.3 else 1
    stage = StagePlan(
        name, kind, tuple(map(_spec, reads)), (_spec(makes),), cores=cores,
        queue_depth=chance.randint(1, 3), replicas=replicas, seconds=chance.choice((0.0, 1e-4, 1e-3)),
    )  # fmt: skip
    return _with_steps(stage, chance) if chance.random() < 0.3 else stage


def _with_steps(stage: StagePlan, chance: random.Random) -> StagePlan:
    """Return a stage in two or three steps, on its own device and on those that may be borrowed."""
    count = chance.randint(2, 3)
    tensors = [(_spec(f"{stage.name} {number}"),) for number in range(1, count)]
    steps = tuple(
        StepPlan(chance.choice((stage.device, "null", "simulated")), (), reads, makes, stage.seconds)
        for reads, makes in zip((stage.inputs, *tensors), (*tensors, stage.outputs), strict=True)
    )
    return replace(stage, steps=steps)


def _spec(name: str) -> TensorSpec:
    return TensorSpec(name, SHAPE)
