"""Stages whose workers borrow other devices, as the planner chooses them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Cluster, Device, Link
from pipeline.core.plan.plan import Plan
from pipeline.errors import PlanError
from pipeline.prediction.contention import WAKING_S
from pipeline.prediction.predict import predict
from pipeline.simulation import simulate
from pipeline.split.graph import Graph
from pipeline.split.planning.advice.explanation import explain
from pipeline.split.planning.advice.stage_times import with_times
from pipeline.split.planning.planner import Planner
from tests.support.onnx_models import node, save

pytestmark = pytest.mark.thorough

# Odd groups are quick on the accelerator, and even ones cannot run there.
GROUPS, CPU_S, NPU_S = 8, 4e-3, 0.5e-3


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A chain of products, so that each is a fused group."""
    weights = {f"w{number}": np.eye(16, dtype=np.float32) for number in range(GROUPS)}
    nodes = [
        node("MatMul", f"{f't{number}' if number else 'x'} w{number}", f"t{number + 1}") for number in range(GROUPS)
    ]
    path = Path(tmp_path_factory.mktemp("chain")) / "chain.onnx"
    return pipeline.read(save(path, nodes, {"x": (1, 16)}, [f"t{GROUPS}"], weights))


def make_board(cores: int = 4) -> Board:
    cpu = Device("cpu", cores=tuple(range(cores)), watts_idle=1.0, watts_busy=5.0)
    npu = Device("npu", "vta", memory="npu", watts_busy=2.0)
    return Board("shared", (cpu, npu), (Link(("host", "npu"), 1e9, 2e-5),))


def make_planner(chain: Graph, board: Board, npu_s: float = NPU_S) -> Planner:
    npu = [npu_s if group % 2 else np.inf for group in range(GROUPS)]
    return Planner(chain, board, {"cpu": [CPU_S] * GROUPS, "npu": npu}, cv=0.0)


def borrowed(plan: Plan) -> set[str]:
    return {step.device for stage in plan.stages for step in stage.steps} - {stage.device for stage in plan.stages}


def test_workers_borrow_what_a_chain_of_stages_could_have_only_once(chain: Graph) -> None:
    planner = make_planner(chain, make_board())
    plan, chain_plan = planner.plan(), planner.plan(heterogeneous=False)
    assert borrowed(plan) == {"npu"}
    assert not borrowed(chain_plan)
    # Of 32 ms of the CPU, 16 remain; the accelerator has 2 ms and its begins, so that four cores set the pace.
    assert predict(plan).interval_s == pytest.approx((16e-3 + 4 * NPU_S) / 4, rel=0.15)
    assert predict(chain_plan).interval_s > 1.5 * predict(plan).interval_s


def test_how_loose_the_bound_is_counts_all_plans_that_were_compared(chain: Graph) -> None:
    solution = make_planner(chain, make_board()).solve()
    assert any(stage.choice.paths for stage in solution.stages)
    assert 0 < solution.bound <= solution.fastest <= solution.interval * (1 + 1e-9)
    assert solution.open_gap == pytest.approx(solution.fastest / solution.bound - 1)


def test_all_cores_work_on_one_frame_where_a_chain_would_divide_them(chain: Graph) -> None:
    """One run of groups is quick on the accelerator: a chain of stages needs cores before and behind it."""
    seconds = {"cpu": [CPU_S] * GROUPS, "npu": [np.inf, np.inf, *[NPU_S] * 3, np.inf, np.inf, np.inf]}
    planner = Planner(chain, make_board(), seconds, cv=0.0)
    plan, chain_plan = (planner.plan(objective="latency", heterogeneous=each) for each in (True, False))
    assert borrowed(plan) == {"npu"}
    assert predict(plan).latency_s < 0.95 * predict(chain_plan).latency_s


@pytest.mark.parametrize("npu_s", [0.5e-3, 1.2e-3, 2.5e-3])
@pytest.mark.parametrize("cores", [1, 2, 4])
@pytest.mark.one_in(3)
def test_what_is_promised_is_simulated_however_crowded_the_device_is(chain: Graph, cores: int, npu_s: float) -> None:
    plan = make_planner(chain, make_board(cores), npu_s).plan()
    assert simulate(plan, frames=300).frames_per_s == pytest.approx(predict(plan).frames_per_s, rel=0.05)


def unlike_planner(chain: Graph, speed: float) -> Planner:
    """Two big cores, two of which each has a share of their speed, and what all of them may borrow."""
    board = make_board()
    clusters = (Cluster("big", (0, 1)), Cluster("little", (2, 3), speed))
    cpu = replace(board.device("cpu"), cores=(0, 1, 2, 3), clusters=clusters)
    return make_planner(chain, replace(board, devices=(cpu, board.device("npu"))))


def test_workers_on_unlike_cores_borrow_one_device_each_at_its_own_pace(chain: Graph) -> None:
    speed = 0.7
    plan = unlike_planner(chain, speed).plan(devices=["cpu+npu"])
    (stage,) = plan.stages
    assert borrowed(plan) == {"npu"}
    assert stage.replicas == 4
    big, *_, little = stage.replica_seconds
    npu_s = sum(step.seconds for step in stage.steps if step.device == "npu")
    assert little - npu_s == pytest.approx((big - npu_s) / speed), "what is borrowed is as fast for all"
    assert stage.seconds == pytest.approx(sum(step.seconds for step in stage.steps)) == stage.mean_seconds
    # Half of the chain is on the cores, as is shown above for cores that are alike.
    assert predict(plan).interval_s == pytest.approx((16e-3 + 4 * NPU_S) / (2 + 2 * speed), rel=0.15)
    assert simulate(plan, frames=600).frames_per_s == pytest.approx(predict(plan).frames_per_s, rel=0.03)
    assert sum(step.seconds for step in stage.at_replica(3).steps) == pytest.approx(little)


def test_times_of_workers_on_unlike_cores_are_found_again_from_their_groups(chain: Graph) -> None:
    planner = unlike_planner(chain, 0.7)
    plan = planner.plan(devices=["cpu+npu"])
    assert explain(planner, plan).interval_s == pytest.approx(predict(plan).interval_s)
    (stage,) = with_times(planner, plan).plan.stages
    assert stage.replica_seconds == pytest.approx(plan.stages[0].replica_seconds)
    assert [step.seconds for step in stage.steps] == pytest.approx([step.seconds for step in plan.stages[0].steps])


def test_a_crowded_device_is_borrowed_less(chain: Graph) -> None:
    """With eight cores it would be asked for more than it has."""
    loads = []
    for cores in (1, 8):
        plan = make_planner(chain, make_board(cores), 1.5e-3).plan(devices=["cpu+npu"])
        loads.append(predict(plan).loads["device npu"])
        assert loads[-1] <= predict(plan).interval_s * (1 + 1e-9)
    assert loads[1] < loads[0]


def test_steps_follow_each_other_and_their_times_add_up(chain: Graph) -> None:
    plan = make_planner(chain, make_board()).plan(devices=["cpu+npu"])
    (stage,) = plan.stages
    assert [step.device for step in stage.steps] == ["cpu", "npu"] * 4
    assert [step.operators[0] for step in stage.steps] == [operator.name for operator in chain.operators]
    assert sum(step.seconds for step in stage.steps) == pytest.approx(stage.seconds)
    assert stage.seconds + WAKING_S == pytest.approx(predict(plan).latency_s)
    for before, after in zip(stage.steps, stage.steps[1:], strict=False):
        assert before.outputs == after.inputs


def test_devices_and_cuts_by_hand_are_kept(chain: Graph) -> None:
    planner = make_planner(chain, make_board())
    plan = planner.plan(devices=["cpu+npu", "cpu"], cuts=[6])
    assert [bool(stage.steps) for stage in plan.stages] == [True, False]
    assert plan.stages[0].operators[1] == chain.operators[5].name
    twice = planner.plan(devices=["cpu+npu", "cpu+npu"])
    assert all(stage.steps for stage in twice.stages)
    assert len(twice.stages[0].cores) + len(twice.stages[1].cores) <= 4
    alone = planner.plan(devices=["cpu+npu"], replicas=False)
    assert alone.stages[0].replicas == 1


def test_without_replicas_one_worker_borrows(chain: Graph) -> None:
    plan = make_planner(chain, make_board()).plan(replicas=False)
    assert all(stage.replicas == 1 for stage in plan.stages)
    assert borrowed(plan) == {"npu"}


def test_energy_and_a_rate_may_ask_for_it_as_well(chain: Graph) -> None:
    planner = make_planner(chain, make_board())
    for options in ({"objective": "latency"}, {"objective": "energy"}, {"fps": 100.0}):
        plan, chain_plan = (planner.plan(heterogeneous=each, **options) for each in (True, False))
        assert borrowed(plan) == {"npu"}, options
        assert predict(plan).latency_s < predict(chain_plan).latency_s
    with pytest.raises(PlanError, match=r"reaches .* frames/s on 'shared', not 5000"):
        planner.plan(fps=5000.0)


def test_nothing_is_borrowed_where_a_chain_is_as_good(chain: Graph) -> None:
    seconds = {"cpu": [CPU_S] * GROUPS, "npu": [np.inf] * 4 + [NPU_S] * 4}
    planner = Planner(chain, make_board(), seconds, cv=0.0)
    assert not borrowed(planner.plan())


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        (["npu+cpu"], "'npu' has no cores of this machine whose workers could borrow"),
        (["cpu+cpu"], "'cpu' cannot be borrowed; board 'shared' has npu"),
    ],
)
def test_what_cannot_be_borrowed_is_refused(chain: Graph, devices: Sequence[str], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make_planner(chain, make_board()).plan(devices=devices)


def test_a_device_of_another_machine_is_not_borrowed(chain: Graph) -> None:
    far = Device("far", "remote", address="remote://10.0.0.2:9190/cpu", memory="far")
    board = make_board()
    board = replace(board, devices=(*board.devices, far), links=(*board.links, Link(("host", "far"), 1e9)))
    times = {"cpu": [CPU_S] * GROUPS, "npu": [np.inf] * GROUPS, "far": [1e-4, 1.0] * 4}
    planner = Planner(chain, board, times, cv=0.0)
    assert not borrowed(planner.plan())
    with pytest.raises(PlanError, match="'far' cannot be borrowed"):
        planner.plan(devices=["cpu+far"])


def test_a_stage_that_cannot_be_says_why(chain: Graph) -> None:
    seconds = {"cpu": [CPU_S] * 7 + [np.inf], "npu": [np.inf] * GROUPS}
    with pytest.raises(PlanError, match="can run"):
        Planner(chain, make_board(), seconds).plan(devices=["cpu+npu"])


def test_the_explanation_has_the_steps_and_the_plan_s_own_times(chain: Graph) -> None:
    planner = make_planner(chain, make_board())
    plan = planner.plan()
    explanation = explain(planner, plan)
    assert explanation.interval_s == pytest.approx(predict(plan).interval_s)
    assert explanation.latency_s == pytest.approx(predict(plan).latency_s)
    for forecast, stage in zip(explanation.stages, plan.stages, strict=True):
        times = [(step.device, step.compute_s + step.transfer_s) for step in forecast.steps]
        assert times == [(step.device, pytest.approx(step.seconds)) for step in stage.steps]
    assert explanation.bound_s <= predict(plan).interval_s


@pytest.mark.parametrize("memory_bytes", [3_000, 6_000, 10_000, 20_000])
@pytest.mark.one_in(2)
def test_each_worker_s_weights_have_room_on_what_it_borrows(chain: Graph, memory_bytes: int) -> None:
    board = with_npu_memory(memory_bytes)
    plan = make_planner(chain, board).plan()
    weights = {operator.name: operator.parameter_bytes for operator in chain.operators}
    lent_bytes = sum(
        stage.replicas * weights[step.operators[0]]
        for stage in plan.stages
        for step in stage.steps
        if step.device == "npu"
    )
    assert lent_bytes <= memory_bytes
    # Four weights for each of four workers, or for as many as there is room for.
    assert (plan.stages[0].replicas == 4 and lent_bytes > 0) == (memory_bytes >= 20_000)


def test_a_borrowed_memory_that_is_too_small_is_named(chain: Graph) -> None:
    with pytest.raises(PlanError, match=r"need 0.00\d+ MB of the memory 'npu'.*it has 0.002 MB.*--no-borrowing"):
        make_planner(chain, with_npu_memory(2_000)).plan(devices=["cpu+npu"], replicas=False)


def with_npu_memory(memory_bytes: int) -> Board:
    board = make_board()
    cpu, npu = board.devices
    return replace(board, devices=(cpu, replace(npu, memory_bytes=memory_bytes)))
