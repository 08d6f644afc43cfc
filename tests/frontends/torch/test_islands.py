"""Operators that TVM cannot import are computed by PyTorch, and are cut, built, saved and run like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import pipeline  # noqa: E402
from pipeline.core.board.board import Board, Device  # noqa: E402
from pipeline.errors import ModelError, PlanError  # noqa: E402
from pipeline.split import extract  # noqa: E402
from pipeline.split.cuts import legal_cuts  # noqa: E402
from tests.support.onnx_models import assert_close, in_stages, kinds  # noqa: E402
from tests.support.torch_models import check_outputs, export, image, run_by_pytorch  # noqa: E402

pytestmark = [
    # PyTorch's own, from its export.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def spectrum() -> Any:
    """Return a program with an island of two operators, joined by complex numbers, between others."""
    return export(lambda self, x: self.linear(torch.fft.rfft(x.exp()).abs()).relu(), image(2, 8), linear=LINEAR)


LINEAR = torch.nn.Linear(5, 3)


def test_an_island_between_others() -> None:
    graph = check_outputs(spectrum(), image(2, 8))
    assert kinds(graph)[:2] == ["exp", "pytorch"]
    (island,) = graph.islands
    assert (island.tensor, island.reason) == ("abs_1", "not supported")
    assert island.operators == ("_fft_r2c (fft_rfft)", "abs (abs_1)")


def test_every_cut() -> None:
    program = spectrum()
    graph = pipeline.read(program)
    values = {graph.inputs[0].name: image(2, 8).numpy()}
    reference = run_by_pytorch(graph, program, values)
    cuts = legal_cuts(graph)
    assert {"exp", "abs_1"} <= {cut.after for cut in cuts}
    for cut in cuts:
        assert_close(in_stages(graph, [cut.position], values), reference)


def test_a_bundle(tmp_path: Path) -> None:
    program = spectrum()
    graph = pipeline.read(program)
    bundle = pipeline.build(graph, pipeline.plan(graph, cuts=["exp"]))
    assert bundle.parity is not None
    bundle.save(tmp_path / "model.bundle")
    values = {graph.inputs[0].name: image(2, 8).numpy()}
    with pipeline.load(tmp_path / "model.bundle") as running:
        outputs = running.submit(values).outputs(60)
    assert_close(outputs, run_by_pytorch(graph, program, values))


def test_a_device_without_pytorch() -> None:
    board = Board("jetson", (Device("cpu"), Device("gpu", "cuda")))
    graph = pipeline.read(spectrum())
    with pytest.raises(PlanError, match="abs_1"):
        pipeline.plan(graph, board, devices=["gpu"])


@pytest.mark.parametrize(
    ("name", "function", "islands"),
    [
        ("values of tensors", lambda _, x: torch.nonzero(x > 0).sum(0) + 1, [["nonzero", "sum.dim_IntList"]]),
        ("a mask", lambda _, x: x[x > 0].sum() * 2, [["index.Tensor", "sum.dim_IntList"]]),
        ("a branch", lambda _, x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)) * 2, [["cond"]]),
        ("several results", lambda _, x: torch.linalg.svd(x)[1] + 1, [["_linalg_svd"]]),
        ("constants", lambda _, x: x + torch.linalg.inv(torch.eye(8) * 2), []),
        ("a type that kernels do not know", lambda _, x: (x.to(torch.bfloat16) + 1).float(),
         [["_to_copy", "add.Tensor", "_to_copy"]]),
        ("infinite numbers", lambda _, x: torch.nan_to_num(x.digamma(), posinf=torch.inf), [["digamma"]]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_kinds_of_islands(name: str, function: Any, islands: list[list[str]]) -> None:
    graph = check_outputs(export(function, image(8, 8)), image(8, 8))
    assert [[text.partition(" ")[0] for text in island.operators] for island in graph.islands] == islands


def test_an_order_that_changes() -> None:
    """Two islands with a way between them, by which one operator comes behind another that stood behind it."""

    def function(_: Any, x: Any) -> Any:
        first = torch.special.i0(x)
        other = x.exp()
        return torch.special.i0(first + 1) * other, first.sin(), other

    graph = check_outputs(export(function, image(2, 3)), image(2, 3))
    assert all("i0" in text or "add" in text for island in graph.islands for text in island.operators)


def test_numbers_stay_what_they_are() -> None:
    program = export(lambda _, x: torch.special.i0(torch.clamp(x, 0.1, 2)).cumprod(1, dtype=torch.float64), image(2, 3))
    output = in_stages(graph := pipeline.read(program), [], {graph.inputs[0].name: image(2, 3).numpy()})
    assert output[graph.outputs[0].name].dtype == np.float64


def test_neighbours_become_one_in_a_stage() -> None:
    def spectra(_: Any, x: Any) -> Any:
        first = torch.fft.rfft(x).abs()
        second = torch.fft.rfft(first).abs()
        return torch.fft.rfft(second.exp()).abs(), torch.fft.rfft(second).abs()

    graph = check_outputs(export(spectra, image(2, 16)), image(2, 16))
    assert sorted(kinds(graph)) == ["exp", *["pytorch"] * 4]
    (part,) = extract.parts(graph, [])
    # Three of them, and the one that waits for what is compiled.
    assert str(extract.module(part)).count("call_dps_packed") == 2


def test_outputs_that_no_input_changes() -> None:
    program = export(lambda self, x: (x + 1, self.linear.weight, torch.arange(4).cumsum(0)), image(3), linear=LINEAR)
    graph = check_outputs(program, image(3))
    assert {island.reason for island in graph.islands} == {"it depends on no input"}
    assert not pipeline.read(program, fallback=False).islands


def test_an_operator_of_several_islands() -> None:
    """Parts of one operator have names of their own, by which stages hand them over."""
    graph = check_outputs(export(lambda _, x: torch.mvlgamma(x.exp() + 2, 2) + 1, image(3, 3)), image(3, 3))
    names = [name for operator in graph.operators for name in operator.outputs]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("layer", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_a_long_recurrent_layer(layer: Any) -> None:
    module = layer(4, 3, batch_first=True, bidirectional=True)
    program = export(lambda self, x: self.layer(x)[0] + 1, image(2, 70, 4), layer=module)
    graph = check_outputs(program, image(2, 70, 4))
    (island,) = graph.islands
    assert island.reason == "a recurrent layer of many steps"


@pytest.mark.parametrize(
    "function",
    [
        lambda _, x: x.sum().argmax() + 1,
        lambda _, x: torch.cat([x[:0].cumsum(0), x]),
        lambda _, x: torch.nn.functional.max_pool3d(x[None], (1, 2, 2), return_indices=True),
    ],
    ids=["without axes", "without elements", "places"],
)
def test_forms_that_tvm_has_not(function: Any) -> None:
    check_outputs(export(function, image(2, 4, 4)), image(2, 4, 4))


def test_offsets_that_pytorch_does_not_check() -> None:
    offsets = np.array([0, 2, 5])
    program = export(lambda _, x, o: torch.segment_reduce(x, "sum", offsets=o), image(5), torch.from_numpy(offsets))
    with pytest.raises(ModelError, match="with offsets, which is not supported; give it lengths"):
        pipeline.read(program)
