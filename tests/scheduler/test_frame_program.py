"""A pipeline that is called with one frame at a time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.executor.devices.null import NullRuntime
from pipeline.scheduler.frame_program import FrameProgram

X, Y, Z = (TensorSpec(name, (4,)) for name in "xyz")
PLAN = Plan(
    "chain",
    "",
    Board("made up", (Device("there", "null"),)),
    (X,),
    (Z,),
    (StagePlan("stage0", "there", (X,), (Y,)), StagePlan("stage1", "there", (Y,), (Z,))),
)


class FastidiousRuntime(NullRuntime):
    """Fails on negative frames."""

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        if inputs[0][0] < 0:
            raise ValueError("a negative frame")
        return super().run(program, inputs)


def test_a_frame_comes_back_with_its_events() -> None:
    calls = FrameProgram(PLAN, [None, None], create=FastidiousRuntime)
    outcome = calls.run([np.full(4, 3, np.float32)])
    np.testing.assert_array_equal(outcome.arrays, [np.full(4, 3)])
    assert [(event.stage, event.kind) for event in outcome.events if event.kind == "run"] == [
        ("stage0", "run"),
        ("stage1", "run"),
    ]
    failure = calls.run([np.full(4, -3, np.float32)])
    assert "a negative frame" in failure.error
    assert (failure.arrays, [event.kind for event in failure.events][-1]) == ([], "failed")
    calls.close()
    assert "closed" in calls.run([np.full(4, 3, np.float32)]).error


def test_calls_at_once_keep_apart() -> None:
    calls = FrameProgram(PLAN, [None, None])
    wrong = []

    def call(number: int) -> None:
        for _ in range(50):
            outcome = calls.run([np.full(4, number, np.float32)])
            if outcome.error or outcome.arrays[0][0] != number or len({event.frame for event in outcome.events}) != 1:
                wrong.append(outcome)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    calls.close()
    assert not wrong
