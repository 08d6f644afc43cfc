"""The comparison of a pipeline with the unsplit model."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.errors import InputError, PlanError, StageError
from pipeline.executor.bundle import Bundle
from pipeline.measure.comparison import compare
from pipeline.measure.throughput import steady_rate


def simulated_bundle(*milliseconds: float) -> Bundle:
    specs = [TensorSpec(f"t{number}", (4,)) for number in range(len(milliseconds) + 1)]
    devices = tuple(Device(f"device{number}", "simulated") for number in range(len(milliseconds)))
    stages = tuple(
        StagePlan(f"stage{number}", f"device{number}", (source,), (target,), seconds=milliseconds[number] / 1e3)
        for number, (source, target) in enumerate(pairwise(specs))
    )
    return Bundle(
        Plan("simulated", "", Board("board", devices), (specs[0],), (specs[-1],), stages), [None] * len(stages)
    )


def test_a_bundle_alone_is_measured_against_its_plan() -> None:
    comparison = compare(None, simulated_bundle(5, 20, 10), frames=12, rounds=3)
    (side,) = comparison.variants
    assert (comparison.model, comparison.rounds, comparison.ratio, comparison.measured) == ("simulated", 3, None, False)
    assert comparison.pipelined is side
    assert side.name == "3 stages"
    assert comparison.predicted_frames_per_s == pytest.approx(50, rel=3e-3)
    # A simulated stage may take longer on a loaded machine, but hardly less than its time.
    assert 0 < side.frames_per_s <= 55
    assert comparison.bottleneck == "stage1"
    assert [stage.predicted_s for stage in side.stages] == [0.005, 0.02, 0.01]
    assert all(stage.seconds >= 0.9 * stage.predicted_s for stage in side.stages)
    assert all(0 < stage.busy <= side.stages[1].busy <= 1 for stage in side.stages)
    assert 0.03 <= side.latency_p50_s <= side.latency_p99_s


def test_decoding_is_measured_beside_the_pipeline() -> None:
    decoded_frames: list[Any] = []
    comparison = compare(None, simulated_bundle(5, 10), frames=6, rounds=2, decode=decoded_frames.append)
    assert comparison.pipelined.name == "2 stages"
    assert comparison.decoded is not None
    assert comparison.decoded.name == "2 stages, decoded"
    # Two rounds, and what it warms up with.
    assert len(decoded_frames) >= 12
    assert all(set(outputs) == {"t2"} for outputs in decoded_frames)
    assert comparison.decoded.frames_per_s > 0
    assert compare(None, simulated_bundle(5), frames=2, rounds=1).decoded is None


def test_a_decoder_that_fails_ends_the_comparison() -> None:
    def fail(_: object) -> None:
        raise InputError("no boxes")

    with pytest.raises(InputError, match="no boxes"):
        compare(None, simulated_bundle(5), frames=2, rounds=1, decode=fail)


def test_the_unsplit_model_is_measured_on_one_core_and_on_all(small_onnx: Path) -> None:
    graph = pipeline.read(small_onnx)
    plan = pipeline.plan(graph, stages=2)
    texts: list[str] = []
    comparison = compare(graph, pipeline.build(graph, plan, check=False), frames=4, rounds=2, progress=texts.append)
    one_core, all_cores, pipelined = comparison.variants
    cores = plan.board.devices[0].cores
    assert one_core.stages[0].cores == cores[-1:]
    assert all_cores.stages[0].cores == cores
    assert one_core.name == "unsplit, 1 core"
    assert pipelined.name.startswith("2 stages, ")
    assert comparison.ratio == pipelined.frames_per_s / one_core.frames_per_s
    assert all(0 < stage.busy <= 1 and stage.seconds > 0 for side in comparison.variants for stage in side.stages)
    # The sides take turns, and change their order.
    rounds = [text for text in texts if text.startswith("round")]
    assert [text.partition(": ")[2] for text in rounds] == [
        variant.name for variant in (*comparison.variants, *comparison.variants[::-1])
    ]


def test_frames_are_chosen_by_their_time() -> None:
    side = compare(None, simulated_bundle(400), rounds=1).pipelined
    # Four frames, of which three wait for the one before.
    assert 0 < side.frames_per_s <= 2.75


@pytest.mark.parametrize("options", [{"frames": 1}, {"frames": 0}, {"rounds": 0}])
def test_a_rate_needs_two_frames_and_a_round(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(options))} is {next(iter(options.values()))}"):
        compare(None, simulated_bundle(1), **options)


def test_a_bundle_of_another_model_is_refused(small_onnx: Path) -> None:
    with pytest.raises(PlanError, match="another model"):
        compare(pipeline.read(small_onnx), simulated_bundle(1))


def test_a_failing_stage_is_reported(small_onnx: Path) -> None:
    graph = pipeline.read(small_onnx)
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=2), check=False)
    swapped = Bundle(bundle.plan, bundle.codes[::-1])
    with pytest.raises(StageError, match="stage"):
        compare(None, swapped, frames=2, rounds=1)


@pytest.mark.parametrize(
    ("replicas", "times", "rate"),
    [
        (1, [1.0, 1.5, 2.0, 2.5], 2.0),
        # As two replicas end that began together: a pair each second.
        (2, [1.0, 1.0, 2.0, 2.0, 3.0, 3.0], 2.0),
        (3, [1.0, 1.0], 1e9),
    ],
)
def test_a_rate_is_that_of_steady_work(replicas: int, times: list[float], rate: float) -> None:
    """One frame of each pair came for free, and a stream of two pairs was half as long as it seemed."""
    assert steady_rate(times, replicas) == pytest.approx(rate)
