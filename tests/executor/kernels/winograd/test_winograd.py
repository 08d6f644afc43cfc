"""Winograd's transforms over random shapes, against ONNX Runtime, and which convolutions are computed so.

How much more the results are off than those of direct sums follows from the transforms: if each of the products in a
result is rounded independently, their standard deviation grows by `growth`, 1.7 for tiles of 2 x 2 and 7.5 for tiles
of 4 x 4.  Direct sums stay within 1e-6 of the largest value here; that much more is allowed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm.target import Target

import pipeline
from pipeline.core.numerics import EXACT, Numerics
from pipeline.executor import host_target, kernels
from pipeline.executor.kernels.conv import DirectConvolution
from pipeline.executor.kernels.layout.rewriter import Rewrite
from pipeline.executor.kernels.microarchitecture import KIB, Microarchitecture
from pipeline.executor.kernels.registry import REWRITES
from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.executor.kernels.tiles.tiling import RegisterTile
from pipeline.executor.kernels.winograd import error, transforms
from pipeline.executor.kernels.winograd import form as forms
from pipeline.executor.kernels.winograd.form import WinogradForm
from pipeline.executor.kernels.winograd.winograd import WinogradConvolution
from pipeline.split import extract
from pipeline.split.graph import Graph
from pipeline.tvm.access import compiler_lock, tvm
from tests.support.onnx_models import Arrays, assert_close, by_onnxruntime, frame, node, save, weights
from tests.support.random_networks import Drawn, eager_microarchitecture

pytestmark = pytest.mark.thorough

DIRECT = 1e-6
WINOGRAD = Numerics()
SERVER = Microarchitecture(lanes=16, registers=32, l1_bytes=48 * KIB, l2_bytes=2048 * KIB)
BOARD = Microarchitecture(lanes=4, registers=32, l1_bytes=32 * KIB, l2_bytes=512 * KIB)


def growth(outputs: int) -> float:
    """Return how much more rounding errors of products weigh in the results than they do in direct sums."""
    data, of_weights, results = transforms.matrices(outputs)
    variances = results**2 @ ((of_weights**2).sum(axis=1) * (data**2).sum(axis=1)) / transforms.KERNEL
    # Of both axes: the product of their standard deviations.
    return float(variances.max())


def run(graph: Graph, values: Arrays, cores: int = 1, target: Any = None, **options: Any) -> tuple[Arrays, list[str]]:
    """Return the outputs of a model, compiled as one stage, and the rules of its kernels."""
    (part,) = extract.parts(graph, [])
    with compiler_lock:
        target = kernels.target_for(target or host_target.host_target())
        module = kernels.optimise(extract.module(part), target, cores, **options)
        executable = tvm.relax.build(module, target, relax_pipeline=kernels.pipeline(target))
        machine = tvm.relax.VirtualMachine(executable, tvm.cpu())
    result = machine["main"](*[tvm.runtime.tensor(values[spec.name]) for spec in part.inputs])
    rules = [rule for rule, _ in kernels.kernels(module).values()]
    return {part.outputs[0].name: result.numpy()}, rules


TILES = pytest.mark.parametrize(("outputs", "chunks"), [(2, 1), (2, 3), (4, 1), (4, 3)], ids=lambda number: f"{number}")


def by_tiles(outputs: int, chunks: int) -> list[Rewrite]:
    """Return the kernels for every convolution that can be by tiles of a size, in so many chunks."""

    def choose(conv: ConvShape, cpu: Microarchitecture, _: np.ndarray) -> WinogradForm | None:
        return forms.with_chunks(conv, cpu, outputs, chunks) if forms.is_possible(conv, cpu) else None

    kernel = WinogradConvolution(choose)
    return [kernel, *(rewrite for rewrite in REWRITES if not isinstance(rewrite, WinogradConvolution))]


def _channels(draw: random.Random) -> int:
    return draw.choice((16, 17, 31, 32, 33, 40, 48, 65))


def _image(draw: random.Random, channels: int) -> tuple[int, ...]:
    return draw.choice((1, 1, 2, 3)), channels, draw.randint(3, 19), draw.randint(3, 19)


def _weights(makes: int, channels: int, seed: int = 0) -> np.ndarray:
    scaled: np.ndarray = weights(makes, channels, 3, 3, seed=seed) / np.float32(3 * channels**0.5)
    return scaled


def bias_and_relu(draw: random.Random) -> Drawn:
    channels, makes = _channels(draw), _channels(draw)
    pads = [draw.randint(0, 2) for _ in range(4)]
    nodes = [node("Conv", "x w b", "c", pads=pads), node("Relu", "c", "y")]
    return nodes, {"x": _image(draw, channels)}, {"w": _weights(makes, channels), "b": weights(makes)}


def residual(draw: random.Random) -> Drawn:
    channels, makes = _channels(draw), _channels(draw)
    nodes = [node("Conv", "x w b", "c", pads=[1] * 4), node("Add", "c r", "s"), node("Relu", "s", "y")]
    batch, _, height, width = image = _image(draw, channels)
    inputs = {"x": image, "r": (batch, makes, height, width)}
    return nodes, inputs, {"w": _weights(makes, channels), "b": weights(makes)}


def skip_connection(draw: random.Random) -> Drawn:
    """The second sum may take the memory of the first layer's result, unless elements are computed twice."""
    channels = _channels(draw)
    nodes = [
        node("Conv", "x v", "a", pads=[1] * 4),
        node("Conv", "a w", "c", pads=[1] * 4),
        node("Add", "c a", "y"),
    ]
    values = {"v": _weights(channels, channels), "w": _weights(channels, channels, seed=1)}
    return nodes, {"x": _image(draw, channels)}, values


# Each of two values of three numbers, and each two of them together.
@pytest.mark.parametrize(("outputs", "chunks", "cores"), [(2, 1, 1), (2, 3, 3), (4, 1, 3), (4, 3, 1)])
@pytest.mark.parametrize("kind", [bias_and_relu, residual, skip_connection], ids=lambda kind: kind.__name__)
@pytest.mark.one_in(2)
def test_result_is_that_of_onnxruntime(
    kind: Callable[[random.Random], Drawn], cores: int, outputs: int, chunks: int, tmp_path: Path
) -> None:
    nodes, inputs, constants = kind(random.Random(f"{kind.__name__}{outputs}{cores}"))
    path = save(tmp_path / "model.onnx", nodes, inputs, ["y"], constants)
    graph = pipeline.read(path)
    values = frame(graph)
    rewrites = by_tiles(outputs, chunks)
    result, rules = run(
        graph, values, cores, numerics=WINOGRAD, rewrites=rewrites, microarchitecture=eager_microarchitecture()
    )
    assert "winograd" in rules
    assert "convolution" not in rules
    assert_close(result, by_onnxruntime(path, values), DIRECT * growth(outputs))


@pytest.mark.parametrize(("size", "expected"), [(2, 1.7), (4, 7.5)])
def test_errors_grow_as_stated(size: int, expected: float) -> None:
    assert growth(size) == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize("size", [2, 4])
def test_transforms_compute_a_convolution(size: int) -> None:
    data, of_weights, results = transforms.matrices(size)
    x, w = weights(size + 2).astype(np.float64), weights(3, seed=1).astype(np.float64)
    convolved = results @ ((of_weights @ w) * (data @ x))
    np.testing.assert_allclose(convolved, np.correlate(x, w, "valid"), rtol=1e-12)
    for matrix in (data, results):
        np.testing.assert_array_equal(matrix, matrix.astype(np.float32))


def _layer(folder: Path, channels: int, size: int) -> tuple[Path, Graph]:
    nodes = [node("Conv", "x w", "c", pads=[1] * 4), node("Relu", "c", "y")]
    inputs = {"x": (1, channels, size, size)}
    path = save(folder / "model.onnx", nodes, inputs, ["y"], {"w": _weights(channels, channels)})
    return path, pipeline.read(path)


def test_it_is_not_even_asked_for_by_default(tmp_path: Path) -> None:
    _, graph = _layer(tmp_path, 32, 28)
    rewrites = [WinogradConvolution(lambda *_: pytest.fail("asked")), DirectConvolution()]
    result, rules = run(graph, frame(graph), rewrites=rewrites)
    assert "convolution" in rules
    off, _ = run(graph, frame(graph), numerics=EXACT)
    np.testing.assert_array_equal(off["y"], result["y"])


def test_it_is_used_where_it_wins(tmp_path: Path) -> None:
    path, graph = _layer(tmp_path, 64, 28)
    values = frame(graph)
    result, rules = run(graph, values, numerics=WINOGRAD)
    assert "winograd" in rules
    assert_close(result, by_onnxruntime(path, values), 1e-5)


@TILES
@pytest.mark.skipif(not host_target.flags() >= {"avx2", "fma"}, reason="not for this processor")
@pytest.mark.one_in(2)
def test_narrower_vectors_compute_the_same(outputs: int, chunks: int, tmp_path: Path) -> None:
    path, graph = _layer(tmp_path, 43, 11)
    values = frame(graph)
    target = Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "haswell"})
    result, rules = run(graph, values, target=target, numerics=WINOGRAD, rewrites=by_tiles(outputs, chunks))
    assert "winograd" in rules
    assert_close(result, by_onnxruntime(path, values), DIRECT * growth(outputs))


def test_weights_keep_their_bits_beside_products_of_float16(tmp_path: Path) -> None:
    """The transformed products are of float32, and the bound on their errors is for such weights."""
    _, graph = _layer(tmp_path, 64, 28)
    target = kernels.target_for(
        Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a76", "mattr": ["+fullfp16"]})
    )
    with compiler_lock:
        module = kernels.optimise(extract.module(extract.parts(graph, [])[0]), target, numerics=Numerics("float16"))
    (function,) = (function for variable, function in module.functions.items() if "winograd" in variable.name_hint)
    assert {str(parameter.ty.dtype) for parameter in function.params} == {"float32"}


def conv_shape(channels: int, size: int, /, **changes: Any) -> ConvShape:
    shape: dict[str, Any] = {
        "batch": 1, "height": size, "width": size, "channels": channels, "out_height": size, "out_width": size,
        "out_channels": channels, "kernel": (3, 3), "strides": (1, 1), "dilation": (1, 1), "pads": (1, 1, 1, 1),
    }  # fmt: skip
    return ConvShape(**{**shape, **changes})


def choose_form(conv: ConvShape, cpu: Microarchitecture) -> WinogradForm | None:
    return forms.choose_form(conv, cpu, _weights(conv.out_channels, conv.channels))


@pytest.mark.parametrize("cpu", [SERVER, BOARD], ids=["server", "board"])
@pytest.mark.parametrize(("channels", "size"), [(32, 56), (64, 56), (128, 28), (256, 56)])
def test_fewer_products_win_where_weights_are_used_often(channels: int, size: int, cpu: Microarchitecture) -> None:
    form = choose_form(conv_shape(channels, size), cpu)
    assert form is not None
    assert form.outputs == 4


def test_many_weights_for_few_pixels_do_not_win() -> None:
    """There are more transformed weights than weights, and they come from memory."""
    assert choose_form(conv_shape(512, 4), SERVER) is None
    assert choose_form(conv_shape(512, 4, batch=16), SERVER) is not None
    server = choose_form(conv_shape(512, 7), SERVER)
    assert server is not None
    assert server.outputs == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"strides": (2, 2)},
        {"dilation": (2, 2)},
        {"groups": 2},
        {"kernel": (5, 5)},
        {"kernel": (1, 3)},
        {"channels": 3},
        {"out_channels": 4},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_other_windows_are_left_alone(changes: dict[str, Any]) -> None:
    assert choose_form(conv_shape(64, 56, **changes), SERVER) is None


def test_a_chunk_stays_in_the_cache() -> None:
    form = choose_form(conv_shape(64, 224), SERVER)
    assert form is not None
    assert forms.weights_stay(form, SERVER)
    assert form.total == 56 * 56 > form.chunk


def test_each_core_gets_a_chunk() -> None:
    form = forms.with_chunks(conv_shape(64, 28), SERVER, 4, 1)
    assert forms.share_chunks(form, SERVER, 1) is form
    three_chunks = forms.share_chunks(form, SERVER, 3)
    assert -(-three_chunks.total // three_chunks.chunk) == 3
    assert three_chunks.layout.tile.vectors == form.layout.tile.vectors
    assert isinstance(three_chunks.layout.tile, RegisterTile)


CORNER = np.zeros((3, 3), np.float32)
CORNER[2, 2] = 1
KERNELS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "random": lambda w: w,
    "positive": np.abs,
    "corner": lambda w: w * CORNER,
    "edges": lambda w: w[..., :1, :1] * np.array([[1, 0, -1], [2, 0, -2], [1, 0, -1]], np.float32),
    "alternating": lambda w: w[..., :1, :1] * np.array([[1, -1, 1], [-1, 1, -1], [1, -1, 1]], np.float32),
    "first channels": lambda w: w * np.exp(-np.arange(w.shape[1], dtype=np.float32) / 4)[:, None, None],
    "sizes apart": lambda w: w * np.float32(10) ** np.linspace(-4, 4, len(w), dtype=np.float32)[:, None, None, None],
}
DATA: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "both signs": lambda x: x,
    "rectified": lambda x: np.maximum(x, 0),
    "far from zero": lambda x: np.abs(x) + 2,
}


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("outputs", "channels"), [(2, 160), (4, 96)])
@pytest.mark.one_in(3)
def test_errors_stay_within_the_bound(outputs: int, channels: int, kernel: str, data: str, tmp_path: Path) -> None:
    """Also of weights whose transforms grow the most; ONNX Runtime's own errors are much smaller."""
    w = KERNELS[kernel](weights(24, channels, 3, 3))
    path = save(
        tmp_path / "m.onnx",
        [node("Conv", "x w", "y")],
        {"x": (1, channels, 14, 14)},
        ["y"],
        {"w": w.astype(np.float32)},
    )
    values = {"x": DATA[data](weights(1, channels, 14, 14, seed=2))}
    result, _ = run(pipeline.read(path), values, numerics=WINOGRAD, rewrites=by_tiles(outputs, 1))
    expected = _exact(values["x"][0], w.astype(np.float32))
    difference = np.abs(result["y"][0] - expected).max() / np.abs(expected).max()
    assert 0.02 * error.bound(w, outputs) < difference < error.bound(w, outputs)


def _exact(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return a convolution without padding in float64."""
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), (1, 2))
    result: np.ndarray = np.einsum("chwij,ocij->ohw", windows, w.astype(np.float64), optimize=True)
    return result


def test_weights_beyond_the_bound_are_computed_otherwise() -> None:
    """By smaller tiles, whose errors grow less; directly where neither is exact enough."""
    shape = conv_shape(256, 56)
    corner = _weights(256, 256) * CORNER
    form = forms.choose_form(shape, SERVER, corner)
    assert form is not None
    assert form.outputs == 2
    assert error.bound(corner, 4) > error.LIMIT > error.bound(corner, 2)
    # Transformed weights overflow.
    assert forms.choose_form(shape, SERVER, np.full((256, 256, 3, 3), 3e38, np.float32)) is None
