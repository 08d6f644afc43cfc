"""Other layouts compute what the rule's own does, and are searched, kept and used like schedules."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import pipeline
from pipeline.core.board.board import Device
from pipeline.core.plan.plan import Plan
from pipeline.executor import kernels
from pipeline.executor.build import compile_stage, target_of
from pipeline.executor.executable import CompileOptions
from pipeline.executor.kernels import microarchitecture
from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.tiles.packing import PackedLayout
from pipeline.executor.tuning import layouts
from pipeline.executor.tuning.bench import ProcessBench, TrialTimes
from pipeline.executor.tuning.database import Database, TuningRecord
from pipeline.executor.tuning.layouts import LayoutSearch
from pipeline.executor.tuning.tasks import Subject, Task, of_stage
from pipeline.executor.tuning.tuner import Budget, tune
from pipeline.split import extract
from pipeline.split.graph import Graph
from tests.support.bundles import outputs
from tests.support.onnx_models import HOST, assert_close, by_onnxruntime, frame, node, save, weights
from tests.support.random_seeds import seeds

pytestmark = pytest.mark.thorough


class ImprovingBench:
    """Finds every proposal to be so many times as fast as the one before, inside of its stage too."""

    def __init__(self) -> None:
        self._seconds = 0.5

    def alone(self, task: Task, candidate: Any) -> TrialTimes | None:
        self._seconds *= 0.9
        return TrialTimes(1.0, self._seconds)

    @staticmethod
    def in_stage(tasks: Sequence[Task], database: Database) -> list[TrialTimes | None]:
        return [TrialTimes(1.0, 0.5)] * len(tasks)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two convolutions alike, the second with a residual sum, and a dense layer."""
    nodes = [
        node("Conv", "x w", "a", "first", pads=[2] * 4),
        node("Relu", "a", "r", "relu"),
        node("Conv", "r v", "b", "second", pads=[2] * 4),
        node("Add", "b r", "c", "sum"),
        node("Flatten", "c", "f", "flat"),
        node("Gemm", "f d", "y", "dense"),
    ]
    constants = {"w": weights(32, 32, 5, 5) / 28, "v": weights(32, 32, 5, 5, seed=1) / 28, "d": weights(32 * 81, 50)}
    return save(tmp_path_factory.mktemp("model") / "two.onnx", nodes, {"x": (1, 32, 9, 9)}, ["y"], constants)


@pytest.fixture(scope="module")
def tasks(subject: Subject) -> list[Task]:
    # However long one of them is held up on a loaded machine, the others are worth it.
    return [task for task in of_stage(subject, least_share=0) if task.form is not None]


def tuned_rules(graph: Graph, plan: Plan, tuning: Path | None, **options: Any) -> list[str]:
    (code,) = pipeline.build(graph, plan, tuning=tuning, check=False, **options).codes
    assert code is not None
    return [call.rule for call in code.calls or () if call.rule.startswith("tuned_")]


def test_a_layout_is_for_all_kernels_of_its_shape(tasks: list[Task]) -> None:
    by_rule = {task.group.placeholder.kernel: task for task in tasks if task.group}
    assert set(by_rule) == {"convolution", "dense"}
    assert len(by_rule["convolution"].names) == 2
    assert by_rule["convolution"].key.shapes == "float32[1, 9, 9, 32], kernel[32, 32, 5, 5], float32[1, 9, 9, 32]"


def test_what_is_faster_is_used_and_computes_the_same(
    graph: Graph, plan: Plan, tasks: list[Task], model: Path, tmp_path: Path
) -> None:
    path, cpu = tmp_path / "tuning.json", microarchitecture.of_target(target_of(plan.board.devices[0]))
    # With short vectors, one layout of a dense layer with a single row is better than all others.
    searched = [task for task in tasks if task.form is not None and layouts.alternatives(task.form, cpu)]
    for task in searched:
        (record,) = tune([task], Database.load(path, create=True), ImprovingBench(), Budget(2))
        assert (record.trials, record.faster) == (2, True)
    rules = sorted(f"tuned_{task.group.placeholder.kernel}" for task in searched if task.group for _ in task.names)
    assert rules[:2] == ["tuned_convolution"] * 2
    bundle = pipeline.build(graph, plan, tuning=path)
    assert bundle.parity.relative <= 1e-5
    assert_close(outputs(bundle, frame(graph)), by_onnxruntime(model, frame(graph)))
    assert tuned_rules(graph, plan, path) == rules
    assert not tuned_rules(graph, plan, None)
    # The search was for float32.
    assert not tuned_rules(graph, plan, path, weights="float16")


@pytest.mark.parametrize("change", [{"depth": 3}, {"lanes": 3}, {"tile": {"rows": 9, "columns": 9, "vectors": 4}}])
def test_a_layout_that_does_not_fit_is_not_used(
    graph: Graph, plan: Plan, tasks: list[Task], tmp_path: Path, change: dict[str, Any]
) -> None:
    path = tmp_path / "tuning.json"
    database = Database(path=path)
    for task in tasks:
        odd = msgspec.json.encode({**msgspec.to_builtins(task.form), **change}).decode()
        database.put(TuningRecord(task.key, task.name, 1, 1.0, 0.5, odd, in_stage=True))
    assert not tuned_rules(graph, plan, path)


class RandomChoices:
    """Chooses any layout that may be better."""

    def __init__(self, draw: random.Random) -> None:
        self._draw, self._cpu = draw, microarchitecture.of_target(kernels.target_for(target_of(HOST)))
        self.chosen: list[PackedLayout] = []

    def for_stage(self, target: Any, cores: int) -> RandomChoices:
        return self

    def layout(self, form: PackedLayout) -> PackedLayout:
        self.chosen.append(self._draw.choice(layouts.alternatives(form, self._cpu)))
        return self.chosen[-1]

    def kernel(self, name: str, function: Any, group: Any) -> None:
        return None

    def rename(self, names: Mapping[str, str]) -> None:
        pass


@pytest.mark.parametrize("seed", seeds(3, 8))
def test_every_layout_computes_the_same(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    channels, makes, groups = draw.choice((6, 16, 48)), draw.choice((20, 64)), draw.choice((1, 1, 2))
    kernel, stride = draw.choice((1, 3, 5)), draw.choice((1, 2))
    shape, values = (2, channels, draw.randint(6, 15), draw.randint(6, 15)), {}
    values["w"] = weights(makes, channels // groups, kernel, kernel)
    values["b"] = weights(makes, 1, 1)
    window: dict[str, Any] = {"pads": [kernel // 2] * 4, "strides": [stride] * 2, "group": groups}
    nodes = [node("Conv", "x w", "c", **window), node("Add", "c b", "s"), node("Relu", "s", "y")]
    path = save(tmp_path / "m.onnx", nodes, {"x": shape}, ["y"], values)
    graph = pipeline.read(path)
    choices = RandomChoices(draw)
    (part,) = extract.parts(graph, [])
    plan = pipeline.plan(graph, stages=1)
    module, device = extract.module(part), plan.board.devices[0]
    code = compile_stage(module, device, draw.choice((1, 2)), CompileOptions(tuning=choices))
    bundle = pipeline.Bundle(plan, [code], None, ())
    assert choices.chosen
    assert_close(outputs(bundle, frame(graph)), by_onnxruntime(path, frame(graph)))


def test_a_search_goes_on_where_it_was(tasks: list[Task]) -> None:
    # The slowest is the first, which the dense layer with its two layouts may be, too.
    task = next(task for task in tasks if "kernel[50" not in task.key.shapes)

    def texts(trials: int) -> list[str]:
        assert task.group
        assert task.form
        search, texts_so_far = LayoutSearch(task.group, task.form, task.target, 1, trials), []
        while proposals := search.candidates():
            texts_so_far += [each.text for each in proposals]
        return texts_so_far

    every_text = texts(0)
    assert len(set(every_text)) == len(every_text) > 5
    assert texts(5) == every_text[5:]


def test_the_process_that_measures(tasks: list[Task]) -> None:
    task = tasks[0]
    assert task.group
    assert task.form
    proposal = LayoutSearch(task.group, task.form, task.target, task.key.cores, 0).candidates()[0]
    with ProcessBench() as bench:
        times = bench.alone(task, proposal.module)
        assert times is not None
        assert min(times) > 0
        database = Database([TuningRecord(task.key, task.name, 1, 1.0, 0.5, proposal.text)])
        assert all(bench.in_stage(tasks, database))


class InPlaceRecorder(RandomChoices):
    """Notes what is written over an operand."""

    def __init__(self) -> None:
        super().__init__(random.Random(0))
        self.over: list[FusedGroup] = []

    def layout(self, form: PackedLayout) -> PackedLayout:
        return form

    def kernel(self, name: str, function: Any, group: Any) -> None:
        if "_over" in name:
            self.over.append(group)


def test_what_overwrites_an_operand_computes_each_element_once(tmp_path: Path) -> None:
    nodes = [node("Conv", f"{read} w", made, pads=[1] * 4) for read, made in ("xa", "ab", "bc")]
    nodes += [node("Add", "c a", "s"), node("Relu", "s", "y")]
    path = save(tmp_path / "m.onnx", nodes, {"x": (1, 64, 12, 4)}, ["y"], {"w": weights(64, 64, 3, 3)})
    (part,) = extract.parts(pipeline.read(path), [])
    device, choices = (
        Device("cpu", target={"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "skylake-avx512"}),
        InPlaceRecorder(),
    )
    compile_stage(extract.module(part), device, 2, CompileOptions(tuning=choices))
    (group,) = choices.over
    form, target = layouts.layout_of(group), target_of(device)
    assert form is not None
    search, proposed_forms = LayoutSearch(group, form, target, 2, 0), set()
    while proposals := search.candidates():
        proposed_forms |= {msgspec.json.decode(each.text, type=PackedLayout) for each in proposals}
    left_out = set(layouts.alternatives(form, microarchitecture.of_target(target))) - proposed_forms
    # Each core has six rows; what five rows at a time leave is computed once more.
    assert {each.tile.rows for each in left_out} >= {5}
    assert {each.tile.rows for each in proposed_forms} >= {1, 2, 3}
