"""Operators without a kernel of their own are built, and named with their share of the time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.executor import host_target
from pipeline.executor.tuning.kernel_times import by_function
from pipeline.split.graph import Graph
from tests.support.onnx_models import IMAGE, node, save, weights

OTHER = "aarch64" if host_target.machine() == "x86_64" else "x86_64"


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A convolution with a rule of its own; a cumulative sum, fused sines and a result of the first stage without."""
    nodes = [
        node("Conv", "x w", "c", "first", pads=[1] * 4),
        node("CumSum", "c axis", "s", "sums"),
        node("Sin", "s", "t", "sine"),
        node("Cos", "t", "u", "cosine"),
        node("Reshape", "u shape", "y", "flat"),
    ]
    constants = {"w": weights(4, 4, 3, 3), "axis": np.array(1), "shape": np.array([1, -1])}
    return pipeline.read(save(tmp_path_factory.mktemp("model") / "odd.onnx", nodes, IMAGE, ["y"], constants))


def test_they_are_named_with_their_share(odd: Graph) -> None:
    (stage,) = pipeline.build(odd, pipeline.plan(odd, stages=1)).general
    shares = {tuple((each.kind, each.name) for each in kernel.operators): kernel.share for kernel in stage.kernels}
    assert set(shares) == {(("cumsum", "sums"),), (("sin", "sine"), ("cos", "cosine"))}
    assert all(share is not None and 0 < share < 1 for share in shares.values())
    assert stage.share == pytest.approx(sum(share or 0 for share in shares.values()))
    assert {each.name for each in stage.operators} == {"sums", "sine", "cosine"}


def test_a_stage_whose_operators_all_have_one_names_none(odd: Graph) -> None:
    first, second = pipeline.build(odd, pipeline.plan(odd, cuts=["first"])).general
    assert (first.stage, first.kernels, first.share) == ("stage0", (), 0)
    assert {each.name for each in second.operators} == {"sums", "sine", "cosine"}


def test_without_a_run_there_is_no_share(odd: Graph) -> None:
    (stage,) = pipeline.build(odd, pipeline.plan(odd, stages=1), check=False).general
    assert len(stage.kernels) == 2
    assert stage.share is None


def test_another_machine_is_built_for_without_a_run(odd: Graph) -> None:
    board = Board("other", (Device("cpu", target={"kind": "llvm", "mtriple": f"{OTHER}-linux-gnu"}),))
    bundle = pipeline.build(odd, pipeline.plan(odd, board, stages=1))
    assert bundle.parity is None
    assert bundle.general[0].share is None
    assert {each.name for each in bundle.general[0].operators} == {"sums", "sine", "cosine"}


def test_results_inside_of_a_kernel_belong_to_their_operators(odd: Graph) -> None:
    (code,) = pipeline.build(odd, pipeline.plan(odd, stages=1), check=False).codes
    assert code is not None
    assert code.calls is not None
    assert [call.results for call in code.calls if call.results] == [("c",), ("s",), ("t", "u", "y")]
    assert code.with_parameters({}).calls == code.calls


def test_a_saved_bundle_does_not_say(odd: Graph, tmp_path: Path) -> None:
    path = tmp_path / "odd.bundle"
    pipeline.build(odd, pipeline.plan(odd, stages=1), check=False).save(path)
    assert pipeline.Bundle.load(path).general == ()


def test_calls_are_gathered_by_function() -> None:
    assert by_function([("a", 1.0), ("b", 2.0), ("a", 3.0)]) == {"a": [1.0, 3.0], "b": [2.0]}
