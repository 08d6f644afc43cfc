"""What runtimes of others run is asked of them, once; who cannot be asked is left out."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.errors import BuildError
from pipeline.executor.devices.model_runtime import ModelRuntime
from pipeline.executor.devices.onnx_runtime import OnnxRuntime
from pipeline.measure.cost_cache import CostCache
from pipeline.measure.refusals import find_refusals
from pipeline.split.graph import Graph

AZURE = {"kind": "onnxruntime", "providers": ["AzureExecutionProvider"]}
CLOUD = Device("cloud", "onnxruntime", target=AZURE)
CPU = Device("cpu", cores=(0,), runtimes=("onnxruntime", "tvm"))


@pytest.fixture(scope="module")
def graph(small_onnx: Path) -> Graph:
    return pipeline.read(small_onnx)


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the devices that are asked."""
    import onnxruntime

    # A provider that is always there, and takes nothing.
    if "AzureExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has no provider beside the CPU's")
    names: list[str] = []
    ask = OnnxRuntime.find_fallbacks

    def find_fallbacks(model: bytes, device: Device) -> object:
        names.append(device.name)
        return ask(model, device)

    monkeypatch.setattr(OnnxRuntime, "find_fallbacks", staticmethod(find_fallbacks))
    return names


def test_each_group_is_asked_for_once(graph: Graph, questions: list[str], tmp_path: Path) -> None:
    cache = CostCache(tmp_path)
    refusals = find_refusals(graph, Board("b", (CPU, CLOUD)), cache=cache)
    assert list(refusals["cloud"]) == list(range(len(graph.group_ends)))
    assert "first of kind Conv (CPUExecutionProvider)" in refusals["cloud"][0]
    # Nor are CPUs asked, which run whatever has a form.
    assert refusals["cpu/onnxruntime"] == {}
    assert questions == ["cloud"] * len(graph.group_ends)
    assert find_refusals(graph, Board("b", (CPU, CLOUD)), cache=cache) == refusals
    assert len(questions) == len(graph.group_ends)
    other = replace(CLOUD, target={**AZURE, "options": {"session.x": "1"}})
    find_refusals(graph, Board("b", (other,)), cache=cache)
    assert len(questions) == 2 * len(graph.group_ends)
    find_refusals(graph, Board("b", (CLOUD,)), cache=CostCache(tmp_path, fresh=True))
    assert len(questions) == 3 * len(graph.group_ends)


def test_what_the_board_excludes_is_not_asked_for(graph: Graph, questions: list[str], tmp_path: Path) -> None:
    limited = replace(CLOUD, families=("matmul", "elementwise"))
    refusals = find_refusals(graph, Board("b", (limited,)), cache=CostCache(tmp_path))
    assert 0 < len(questions) < len(graph.group_ends)
    assert len(refusals["cloud"]) == len(questions)


def test_who_may_fall_back_or_is_not_here_is_not_asked(graph: Graph, questions: list[str], tmp_path: Path) -> None:
    tolerant = replace(CLOUD, name="tolerant", target={**AZURE, "allow_fallback": True})
    absent = replace(CLOUD, name="absent", target={"kind": "onnxruntime", "providers": ["NoSuchProvider"]})
    board = Board("b", (CPU, tolerant, absent))
    assert find_refusals(graph, board, cache=CostCache(tmp_path)) == {"cpu/onnxruntime": {}, "tolerant": {}}
    assert not questions


def test_only_the_first_runtime_counts_where_nothing_is_measured(graph: Graph, tmp_path: Path) -> None:
    board = Board("b", (replace(CPU, runtimes=("tvm", "onnxruntime")),))
    assert find_refusals(graph, board, runtimes=False, cache=CostCache(tmp_path)) == {}


def test_an_error_is_no_lasting_answer(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver may have been busy."""
    board, cache = Board("b", (CLOUD,)), CostCache(tmp_path)

    def fail(*_: object) -> object:
        raise OSError("device or resource busy")

    with monkeypatch.context() as patch:
        patch.setattr(OnnxRuntime, "find_fallbacks", staticmethod(fail))
        reasons = find_refusals(graph, board, cache=cache)["cloud"].values()
        assert set(reasons) == {"ONNX Runtime cannot run it: device or resource busy"}
    monkeypatch.setattr(OnnxRuntime, "find_fallbacks", staticmethod(lambda *_: {}))
    assert find_refusals(graph, board, cache=cache) == {"cloud": {}}


def test_a_command_is_asked_although_the_device_is_not_here(graph: Graph, tmp_path: Path) -> None:
    script = tmp_path / "unsupported.py"
    script.write_text(
        "import onnx, sys\nfor node in onnx.load(sys.argv[1]).graph.node:\n"
        "    if node.op_type == 'Gemm': print(node.name)\n"
    )
    command = f"{shlex.join([sys.executable, str(script)])} {{stage}}.onnx"
    target = {"kind": "vendor", "loader": "none-such", "supported": command}
    refusals = find_refusals(graph, Board("b", (Device("npu", "vendor", target=target),)), cache=CostCache(tmp_path))
    last = len(graph.group_ends) - 1
    assert refusals == {"npu": {last: "dense (it cannot take it)"}}


def test_a_runtime_that_says_nothing_of_itself_is_asked_wherever_it_is_here() -> None:
    class Abacus(ModelRuntime):
        @classmethod
        def is_here(cls, device: Device) -> bool:
            return device.name == "a"

    assert Abacus.is_selective(Device("a", "abacus"))
    assert not Abacus.is_selective(Device("a", "abacus", target={"allow_fallback": True}))


def test_a_build_names_what_it_would_run_elsewhere(graph: Graph) -> None:
    cpu = Device("cpu", cores=(0,))
    plan = pipeline.plan(graph, Board("b", (cpu, CLOUD)), stages=1)
    forced = replace(plan, stages=(replace(plan.stages[0], device="cloud", cores=()),))
    with pytest.raises(BuildError, match="elsewhere than on 'cloud': first of kind Conv"):
        pipeline.build(graph, forced)
