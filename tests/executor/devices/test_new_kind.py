"""A kind of device is one adapter and one entry of the registry: the rest of the project asks the entry."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.core.board import board_file
from pipeline.core.board.board import Board, Device
from pipeline.core.board.device_kinds import DeviceKind, device_kind, kind_names, register
from pipeline.core.plan.plan import StagePlan
from pipeline.errors import BoardError
from pipeline.executor import detection, devices
from pipeline.executor.devices.accelerator import Accelerator
from pipeline.executor.devices.null import NullRuntime
from pipeline.remote.device_threads import offered_kinds
from pipeline.simulation import simulate
from pipeline.split.graph import Graph
from tests.support.device_kinds import added_kind

REGISTRY = "pipeline/core/board/device_kinds.py"
DICE = DeviceKind("dice", f"{__name__}:DiceRuntime", computes=False, occupies_cores=False, detectable=True)


class DiceRuntime(NullRuntime):
    """Throws dice: each output is a constant of the stage's shape."""

    @staticmethod
    def detect() -> list[Accelerator]:
        return [Accelerator("dice", 0, "two dice", 0, 2, 1.0, "")]

    def load(self, stage: StagePlan, code: Any) -> list[np.ndarray]:
        assert code is None
        return [np.full(spec.shape, 6, spec.dtype) for spec in stage.outputs]

    def run(self, program: list[np.ndarray], inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        assert inputs
        return program


@pytest.fixture(autouse=True)
def dice() -> Iterator[None]:
    with added_kind(DICE):
        yield


def test_a_model_is_planned_simulated_built_and_streamed_on_it(graph: Graph) -> None:
    board = Board("casino", (Device("cpu"), Device("table", "dice")))
    plan = pipeline.plan(graph, board, devices=["cpu", "table"])
    assert [stage.device for stage in plan.stages] == ["cpu", "table"]
    assert simulate(plan, frames=20).frames_per_s > 0
    bundle = pipeline.build(graph, plan)
    assert [code is None for code in bundle.codes] == [False, True]
    frame = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in plan.inputs}
    with pipeline.load(bundle) as running:
        outputs = list(running.map([frame] * 3))
    dice_outputs = [spec.name for spec in plan.stages[1].outputs]
    assert "y" in dice_outputs
    assert all((np.asarray(output[name]) == 6).all() for output in outputs for name in dice_outputs)


def test_it_is_looked_for_offered_and_named_in_files() -> None:
    assert "dice" in detection.detectable_kinds()
    assert "two dice" in [accelerator.name for accelerator in detection.accelerators()]
    assert "dice" in offered_kinds()
    board = board_file.decode(b'[[devices]]\nname = "table"\nkind = "dice"\n', "casino")
    assert devices.create(board.devices[0]).occupies_cores is False
    assert detection.why_absent(board.devices[0]) == "devices of kind 'dice' compute nothing"


def test_two_kinds_of_one_name_are_refused() -> None:
    with pytest.raises(BoardError, match="there is a kind of device 'cpu' already"):
        register(DeviceKind("cpu"))


@pytest.mark.parametrize("kind", ["opencl", "vulkan"])
def test_a_kind_that_nothing_drives_is_refused_with_those_there_are(kind: str) -> None:
    text = f'[[devices]]\nname = "gpu"\nkind = "{kind}"\n'.encode()
    with pytest.raises(BoardError, match=r"which nothing drives; there are cpu, cuda, vta, remote, rpc, simulated"):
        board_file.decode(text, "board")
    with pytest.raises(BoardError, match=r"which nothing drives; there are cpu, cuda"):
        devices.create(Device("gpu", kind))


def test_every_kind_has_an_adapter_that_can_be_imported() -> None:
    for name in kind_names():
        assert issubclass(devices.adapter(name), devices.DeviceRuntime)
        assert device_kind(name).name == name


# No other file tells kinds apart by name.


def comparisons(source: str) -> list[str]:
    """Return what compares something called ``kind`` with the name of a kind of device, or lists such names."""
    names = set(kind_names()) | {"opencl", "vulkan"}
    tree = ast.parse(source)
    texts_of = {id(node): strings(node) for node in ast.walk(tree) if isinstance(node, (ast.Tuple, ast.List, ast.Set))}
    lists = [node for node in ast.walk(tree) if len(texts_of.get(id(node), ())) > 1 and texts_of[id(node)] <= names]
    comparing = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and any(ast.unparse(side).rpartition(".")[2] == "kind" for side in (node.left, *node.comparators))
        and any(strings(side) & names for side in (node.left, *node.comparators))
    ]
    return [ast.unparse(node) for node in (*lists, *comparing)]


def strings(node: ast.AST) -> set[str]:
    """Return the texts of a literal, or of a collection that holds nothing but texts."""
    parts = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]
    texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return set(texts) if len(texts) == len(parts) else set()


def test_only_the_registry_tells_kinds_apart(root: Path) -> None:
    files = [*(root / "pipeline").rglob("*.py"), *(root / "boards").rglob("*.py")]
    offenders = {
        str(file.relative_to(root)): lines
        for file in files
        if file != root / REGISTRY and (lines := comparisons(file.read_text(encoding="utf-8")))
    }
    assert not offenders


@pytest.mark.parametrize(
    "source",
    ['device.kind == "cpu"', 'if "vta" != kind: pass', 'd.kind in ("remote", "x")', 'IDLE = ("null", "simulated")'],
)
def test_a_comparison_of_names_is_seen(source: str) -> None:
    assert comparisons(source)


@pytest.mark.parametrize("source", ['token.kind == "end"', "device.kind != other.kind", 'Device("cpu", "cpu")'])
def test_other_comparisons_are_not_meant(source: str) -> None:
    assert not comparisons(source)
