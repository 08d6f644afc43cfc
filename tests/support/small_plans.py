"""Small plans for tests."""

from __future__ import annotations

from typing import Any

from pipeline.core.board.board import Board, Device, Link
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec

BOARD = Board(
    "test",
    (
        Device("cpu", cores=(0, 1)),
        Device("far", index=3, memory="far", target={"kind": "llvm", "mattr": ["+neon"], "num-cores": 4}),
    ),
    (Link(("host", "far"), 1e9, 1e-5),),
)


def spec(name: str, shape: tuple[int, ...] = (4,), dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name, shape, dtype)


def stage(name: str, reads: str, makes: str, **options: Any) -> StagePlan:
    device = options.pop("device", "cpu")
    return StagePlan(name, device, tuple(map(spec, reads.split())), tuple(map(spec, makes.split())), **options)


def plan(*stages: StagePlan, inputs: str = "x z", outputs: str = "y", **options: Any) -> Plan:
    return Plan("m", "d", BOARD, tuple(map(spec, inputs.split())), tuple(map(spec, outputs.split())), stages, **options)


def skip_plan() -> Plan:
    """Three stages, a tensor that skips one, a second input into the second stage, on two devices.

    Fault 9: one output feeds two inputs of later stages; fault 1: the second input goes into a later stage.
    """
    return plan(
        stage("first", "x", "a b", operators=("one", "two"), cores=(0,), seconds=1e-3),
        stage("second", "a z", "c", device="far", seconds=2e-3, queue_depth=4),
        stage("third", "c a b x", "y other", cores=(1,), seconds=1.5e-3),
        outputs="y other",
        unsplit_seconds=4e-3,
    )


def host(*cores: int, **options: Any) -> Board:
    return Board("test", (Device("cpu", cores=cores, **options),))


def last_operators(plan: Plan) -> list[str]:
    return [stage.operators[1] for stage in plan.stages]
