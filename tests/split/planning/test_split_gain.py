"""A split is the default only if it gains more than the error of the rates."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pipeline.core.board.board import Accuracy, Board, Device, Link
from pipeline.prediction.predict import predict
from pipeline.split.graph import Graph
from pipeline.split.planning.advice.explanation import explain
from pipeline.split.planning.planner import Planner
from pipeline.split.planning.split_gain import is_split

NPU_S = [1e-2] * 6


def planner(graph: Graph, cpu_s: float, *accuracies: Accuracy | None, **options: Any) -> Planner:
    """Return a planner of a CPU core that takes so long for each group, beside an NPU of 10 ms."""
    cpu, npu = accuracies or (None, None)
    devices = Device("cpu", accuracy=cpu), Device("npu", "simulated", memory="npu", accuracy=npu)
    board = Board("two", devices, (Link(("host", "npu"), 1e12),))
    # The NPU's times are in the same table, but they are estimates: a third device has no time.
    spare = dataclasses.replace(board, devices=(*devices, Device("spare", families=("other",))))
    return Planner(graph, spare, {"cpu": [cpu_s] * 6, "npu": NPU_S}, **options)


def rate(plan: Any) -> float:
    return predict(plan).frames_per_s


SURE, VAGUE = Accuracy(9, 0.95, 1.05), Accuracy(9, 0.4, 2.5)


@pytest.mark.parametrize(
    ("cpu_s", "accuracies", "splits"),
    [
        # One group of six on the CPU: five on the NPU, 1.2 times as fast as all six.
        (4e-2, (), True),
        # The same where the rates are known to 5 %.
        (4e-2, (SURE, SURE), True),
        # A CPU that may be 2.5 times slower would take 100 ms for that group.
        (4e-2, (VAGUE, SURE), False),
        # Half of the groups on each, twice as fast: whatever the NPU's factor, three draws in four gain enough.
        (1e-2, (SURE, SURE), True),
        # One group there takes nearly as long as all on the NPU: 1.05 times.
        (5.7e-2, (), False),
    ],
)
def test_a_split_is_the_default_if_it_gains_more_than_its_error(
    chain: Graph, cpu_s: float, accuracies: tuple[Accuracy, ...], *, splits: bool
) -> None:
    own_planner = planner(chain, cpu_s, *accuracies)
    plan, fastest = own_planner.plan(), own_planner.plan(objective="throughput")
    assert is_split(plan) == splits
    if splits:
        assert plan == fastest
    else:
        assert [stage.device for stage in plan.stages] == ["npu"]
        assert rate(fastest) >= rate(plan)


@pytest.mark.parametrize("cpu_s", [1e-2, 4e-2, 5.7e-2])
@pytest.mark.parametrize("accuracies", [(), (SURE, SURE), (VAGUE, SURE), (VAGUE, VAGUE)])
@pytest.mark.one_in(3)
def test_the_advice_does_not_contradict_the_plan(chain: Graph, cpu_s: float, accuracies: tuple[Accuracy, ...]) -> None:
    own_planner = planner(chain, cpu_s, *accuracies)
    plan = own_planner.plan()
    explanation = explain(own_planner, plan)
    assert explanation.verdict == ("pipeline" if is_split(plan) else "one stage")
    assert "times the best unsplit way" in explanation.reason or rate(plan) == pytest.approx(1 / 6e-2)
    assert ("of the draws" in explanation.reason) == bool(accuracies)
    assert not any("by the planner" in line for line in explanation.help)
    # The line of trade-offs has nothing faster than it says.
    assert explanation.trade_offs[0].frames_per_s >= explanation.frames_per_s


@pytest.mark.parametrize(("cpu_s", "splits"), [(4e-2, False), (1.2e-2, True)])
def test_cores_join_a_device_that_runs_all_of_it_only_for_half_as_much_again(
    chain: Graph, cpu_s: float, *, splits: bool
) -> None:
    """1.2 times the rate kept all cores of a board busy beside its NPU; 1.67 times is worth them."""
    own_planner = planner(chain, cpu_s)
    cpu, *others = own_planner.board.devices
    board = dataclasses.replace(own_planner.board, devices=(dataclasses.replace(cpu, cores=(0,)), *others))
    own_planner = dataclasses.replace(own_planner, board=board)
    plan = own_planner.plan()
    assert is_split(plan) == splits
    assert "1.5 times" in explain(own_planner, plan).reason


def test_what_is_asked_for_is_not_overruled(chain: Graph) -> None:
    own_planner = planner(chain, 5.7e-2)
    for options in ({"stages": 2}, {"cuts": [1]}, {"devices": ["cpu", "npu"]}, {"objective": "throughput"}):
        assert len(own_planner.plan(**options).stages) == 2, options
    assert len(own_planner.plan(fps=17).stages) == 2
    explanation = explain(own_planner, own_planner.plan(objective="throughput"), "throughput")
    assert explanation.verdict == "pipeline"
    assert explanation.reason.startswith("The fastest plan, as asked for: ")


def test_a_model_that_no_device_runs_alone_is_split(chain: Graph) -> None:
    refusals = {"npu": {0: "no"}, "cpu": {5: "no"}}
    own_planner = planner(chain, 1e-2, VAGUE, VAGUE, refusals=refusals)
    plan = own_planner.plan()
    assert len(plan.stages) == 2
    assert explain(own_planner, plan).reason.endswith("; no device can run the whole model.")


def test_the_line_of_the_fastest_way_is_not_below_the_plan(chain: Graph) -> None:
    """The solver's count of the fastest way was printed, also where the plan's search had found a faster one."""
    own_planner = planner(chain, 1e-2)
    plan = own_planner.plan(stages=2)
    # A plan by hand that the solver does not know.
    quick = dataclasses.replace(plan, stages=tuple(dataclasses.replace(stage, seconds=1e-4) for stage in plan.stages))
    for case in (plan, quick, own_planner.plan(objective="latency")):
        explanation = explain(own_planner, case)
        best = max(way.frames_per_s for way in explanation.trade_offs)
        assert explanation.trade_offs[0].frames_per_s == best >= explanation.frames_per_s
        assert explanation.trade_offs[-1].latency_s <= explanation.latency_s * (1 + 1e-9)
