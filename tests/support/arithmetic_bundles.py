"""Bundles of stages that add up integers, wait and fail, in any legal graph: for the scheduler of the C++ runner.

Their code is TVM's, and calls a kernel of ``tests/runner/native/arithmetic.cpp``, which does what the stage's only
parameter says.
"""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.executor.bundle import Bundle
from pipeline.executor.stage_code import StageCode
from tests.support.arithmetic_graphs import Code

KERNEL = "soc_test.arithmetic"

ArithmeticCodes = dict[int, StageCode]
"""By the number of inputs."""


def compile_codes(folder: Path, most_inputs: int = 3) -> ArithmeticCodes:
    """Return the code of stages with one output, in files, so that it is linked once."""
    return {count: _compile(folder / f"{count}.bundle", count) for count in range(1, most_inputs + 1)}


def _compile(path: Path, count: int) -> StageCode:
    import tvm
    from tvm import relax

    of_frame, of_parameter = relax.TensorType((2,), "int64"), relax.TensorType((3,), "int64")
    names = [*(f"x{number}" for number in range(count)), "code"]
    arguments = [relax.Var(name, of_parameter if name == "code" else of_frame) for name in names]
    builder = relax.BlockBuilder()
    with builder.function("main", arguments):
        builder.emit_func_output(builder.emit(relax.op.call_dps_packed(KERNEL, arguments, out_ty=of_frame)))
    executable = tvm.compile(builder.get(), tvm.target.Target("llvm"))
    code = StageCode(executable.jit, {"code": Code().parameter}, executable=executable)
    inputs = tuple(TensorSpec(name, (2,), "int64") for name in names[:-1])
    outputs = (TensorSpec("y", (2,), "int64"),)
    plan = Plan("one", "", Board("one", (Device("cpu"),)), inputs, outputs, (StagePlan("s", "cpu", inputs, outputs),))
    Bundle(plan, [code]).save(path)
    (loaded,) = Bundle.load(path).codes
    return loaded  # type: ignore[no-any-return]


def save(plan: Plan, codes: Sequence[Code], compiled: ArithmeticCodes, path: Path) -> Path:
    """Write a plan's bundle, whose stages do what `codes` says."""
    stages: list[Any] = [
        compiled[len(stage.inputs)].with_parameters({"code": code.parameter})
        for stage, code in zip(plan.stages, codes, strict=True)
    ]
    Bundle(plan, stages).save(path)
    return path


FACTORS = (2, 3, 5)
FAILING = (3, 9)
"""Kinds of frames on which the first and the last stage of `save_faulty` fail."""


def save_faulty(compiled: ArithmeticCodes, path: Path) -> Path:
    """Write a bundle of three stages in a row, two of them with replicas, of which two fail on some frames."""
    specs = [TensorSpec(f"t{number}", (2,), "int64") for number in range(4)]
    stages = tuple(
        StagePlan(f"s{number}", "cpu", (specs[number],), (specs[number + 1],), replicas=replicas, queue_depth=2)
        for number, replicas in enumerate((1, 3, 2))
    )
    plan = Plan("faulty", "", Board("one", (Device("cpu"),)), (specs[0],), (specs[3],), stages)
    failing = (frozenset({FAILING[0]}), frozenset[int](), frozenset({FAILING[1]}))
    return save(
        plan, [Code(factor, failing=kinds) for factor, kinds in zip(FACTORS, failing, strict=True)], compiled, path
    )


def stress(
    program: Path, bundle: Path, frames: int, admission: str, environment: Mapping[str, str] | None = None
) -> list[int]:
    """Stream through `save_faulty`'s bundle; return how many were delivered, dropped, failed and cancelled."""
    mask = sum(1 << kind for kind in FAILING)
    command = [str(program), str(bundle), str(frames), admission, str(math.prod(FACTORS)), str(mask)]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=1700, env={**os.environ, **(environment or {})}
    )
    assert result.returncode == 0, result.stderr[-6000:]
    return [int(word) for word in result.stdout.split()]
