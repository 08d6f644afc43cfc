"""Tuning keeps what is faster than the rule, and nothing else; no test depends on how fast this machine is."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest
from tvm import tirx

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan
from pipeline.errors import TuningError
from pipeline.executor.tuning.bench import ProcessBench, TrialBench, TrialTimes
from pipeline.executor.tuning.database import Database, TuningRecord
from pipeline.executor.tuning.tasks import Subject, Task, merge_tasks, of_stage
from pipeline.executor.tuning.tuner import TuningStep
from pipeline.executor.tuning.worker import in_turns
from pipeline.executor.tuning.workload import module_of
from pipeline.split.graph import Graph
from tests.support.bundles import outputs
from tests.support.onnx_models import assert_close, by_onnxruntime, frame, node, save, weights

pytestmark = pytest.mark.thorough


class FixedBench:
    """Finds every schedule to take so many times as long as the rule."""

    def __init__(self, isolated: float, in_stage: float) -> None:
        self._alone, self._in_stage = isolated, in_stage

    def alone(self, task: Task, candidate: Any) -> TrialTimes | None:
        return TrialTimes(1.0, self._alone)

    def in_stage(self, tasks: Sequence[Task], database: Database) -> list[TrialTimes | None]:
        return [TrialTimes(1.0, self._in_stage)] * len(tasks)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    nodes = [
        node("Conv", "x w", "c", "first", pads=[1] * 4, group=4),
        node("Resize", "c - s", "u", "up", mode="linear"),
        node("Sin", "u", "y", "sine"),
    ]
    constants = {"w": weights(4, 1, 3, 3), "s": np.array([1, 1, 2, 2], np.float32)}
    return save(tmp_path_factory.mktemp("model") / "up.onnx", nodes, {"x": (1, 4, 16, 16)}, ["y"], constants)


@pytest.fixture
def tune_with(graph: Graph, plan: Plan, tmp_path: Path) -> Callable[..., list[TuningRecord]]:
    def run(bench: TrialBench, **options: Any) -> list[TuningRecord]:
        return pipeline.tune(graph, plan, tmp_path / "tuning.json", bench=bench, **{"trials": 2, **options})

    return run


def rules(graph: Graph, plan: Plan, tuning: Path | None) -> list[str]:
    (code,) = pipeline.build(graph, plan, tuning=tuning, check=False).codes
    assert code is not None
    assert code.calls is not None
    return [call.rule for call in code.calls]


def test_what_is_faster_is_used_and_computes_the_same(
    tune_with: Any, graph: Graph, plan: Plan, model: Path, tmp_path: Path
) -> None:
    records = tune_with(FixedBench(0.5, 0.5))
    assert any(record.faster for record in records)
    bundle = pipeline.build(graph, plan, tuning=tmp_path / "tuning.json")
    assert "tuned" in rules(graph, plan, tmp_path / "tuning.json")
    assert bundle.parity.relative <= 1e-5
    assert not bundle.general[0].kernels
    assert_close(outputs(bundle, frame(graph)), by_onnxruntime(model, frame(graph)))
    assert "tuned" not in rules(graph, plan, None)


@pytest.mark.parametrize("shares", [(1.0, 0.5), (0.5, 1.5), (0.5, 0.995)])
def test_what_is_not_faster_is_not_used(
    tune_with: Any, graph: Graph, plan: Plan, tmp_path: Path, shares: tuple[float, float]
) -> None:
    records = tune_with(FixedBench(*shares))
    assert sum(record.trials for record in records) == 2
    assert not any(record.faster for record in records)
    assert "tuned" not in rules(graph, plan, tmp_path / "tuning.json")


def test_an_interruption_keeps_what_was_found_and_the_next_run_goes_on(tune_with: Any, tmp_path: Path) -> None:
    def interrupt(step: TuningStep) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune_with(FixedBench(0.5, 0.5), on_trial=interrupt)
    (record,) = Database.load(tmp_path / "tuning.json").records
    assert (record.trials, record.tuned_seconds, record.faster) == (1, 0.5, False)
    assert record.trace
    steps: list[TuningStep] = []
    records = {record.key: record for record in tune_with(FixedBench(0.5, 0.25), trials=1, on_trial=steps.append)}
    assert [step.trials for step in steps] == [1]
    assert sum(record.trials for record in records.values()) == 2
    # Found before, but only now compared inside of its stage.
    assert (records[record.key].tuned_seconds, records[record.key].faster) == (0.25, True)
    assert {record.key: record for record in Database.load(tmp_path / "tuning.json").records}.items() <= records.items()


def test_the_time_limit(tune_with: Any) -> None:
    assert sum(record.trials for record in tune_with(FixedBench(0.5, 0.5), seconds=1e-9)) == 0


def test_nothing_to_tune(tmp_path: Path) -> None:
    nodes = [node("Conv", "x w", "c", pads=[1] * 4), node("Relu", "c", "y")]
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": (1, 4, 6, 6)}, ["y"], {"w": weights(4, 4, 3, 3)}))
    board = Board("dream", (Device("dream", "simulated"),))
    with pytest.raises(TuningError, match="there is nothing to tune in 'm'"):
        pipeline.tune(graph, pipeline.plan(graph, board), tmp_path / "tuning.json", bench=FixedBench(0.5, 0.5))


@pytest.mark.parametrize(
    "case",
    [
        ("", "is not a tuning database"),
        ("{", "is not a tuning database"),
        ("[1]", "is not a tuning database"),
        ('{"format": 1, "stages": []}', "is not a tuning database"),
        ('{"soc_pipeline_tuning": 1}', "is damaged"),
        ('{"soc_pipeline_tuning": 1, "records": [{"key": 1}]}', "is damaged"),
        ('{"soc_pipeline_tuning": 9, "records": []}', "has format 9, newer than 1"),
    ],
)
def test_what_is_no_database_is_refused(
    graph: Graph, plan: Plan, tune_with: Any, tmp_path: Path, case: tuple[str, str]
) -> None:
    path, (content, message) = tmp_path / "tuning.json", case
    path.write_text(content)
    for use in (lambda: tune_with(FixedBench(0.5, 0.5)), lambda: pipeline.build(graph, plan, tuning=path)):
        with pytest.raises(TuningError, match=message) as caught:
            use()
        assert "tuning.json" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert path.read_text() == content


def test_a_missing_database_is_named(graph: Graph, plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(TuningError, match=r"missing.json.*; make one with 'soc-pipeline tune'"):
        pipeline.build(graph, plan, tuning=tmp_path / "missing.json")


@pytest.mark.parametrize("change", [{"tvm": "0.1"}, {"target": "{}"}, {"cores": 99}])
def test_a_schedule_for_something_else_is_not_used(
    tune_with: Any, graph: Graph, plan: Plan, tmp_path: Path, change: dict[str, Any]
) -> None:
    tune_with(FixedBench(0.5, 0.5))
    path = tmp_path / "tuning.json"
    content = json.loads(path.read_text())
    for record in content["records"]:
        record["key"] |= change
    path.write_text(json.dumps(content))
    assert "tuned" not in rules(graph, plan, path)


@pytest.mark.parametrize("trace", ["", "[]", '[[["GetSBlock", [], ["gone", "main"], ["b0"]]], []]'])
def test_a_schedule_that_does_not_fit_is_not_used(
    tune_with: Any, graph: Graph, plan: Plan, tmp_path: Path, trace: str
) -> None:
    database = Database(path=tmp_path / "odd.json")
    for record in tune_with(FixedBench(0.5, 0.5)):
        database.put(msgspec.structs.replace(record, trace=trace, tuned_seconds=0.1, rule_seconds=1.0, in_stage=True))
    assert "tuned" not in rules(graph, plan, tmp_path / "odd.json")


def test_equal_functions_are_one_task(subject: Subject) -> None:
    # All of them, whichever was held up on a busy machine.
    tasks = of_stage(subject, least_share=0)
    assert tasks == sorted(tasks, key=lambda task: -task.seconds)
    assert merge_tasks([*tasks, *tasks]) == merge_tasks(tasks)
    assert {task.key for task in tasks} == {task.key for task in of_stage(subject, least_share=0)}


def child_processes() -> set[psutil.Process]:
    return {process for process in psutil.Process().children() if process.status() != psutil.STATUS_ZOMBIE}


def test_the_process_that_measures(subject: Subject) -> None:
    task, before = of_stage(subject)[0], child_processes()
    with ProcessBench() as bench:
        times = bench.alone(task, module_of(task.rule))
        assert times is not None
        assert min(times) > 0
        assert all(bench.in_stage([task], Database()))
        (process,) = child_processes() - before
        # Another number of arguments.
        empty_function = tirx.PrimFunc(list(task.function.params)[:1], tirx.Evaluate(tirx.IntImm("int32", 0)))
        assert bench.alone(task, module_of(empty_function.with_attr("s_tir", True))) is None
        assert child_processes() - before == {process}
    assert not process.is_running()


def test_a_process_that_is_too_slow_is_ended(subject: Subject) -> None:
    task, before = of_stage(subject)[0], child_processes()
    with ProcessBench(limit_s=0.0) as bench:
        assert bench.alone(task, module_of(task.rule)) is None
        # It may be at it still, so the next request goes to another one.
        assert child_processes() == before


def test_calls_take_turns() -> None:
    order: list[str] = []
    times = in_turns([lambda: order.append("rule"), lambda: order.append("candidate")])
    assert len(times) == 2
    assert order[:2] == ["rule", "candidate"]
