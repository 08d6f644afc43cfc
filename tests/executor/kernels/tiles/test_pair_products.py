"""Products of bfloat16 in pairs: exact but for the rounding of their operands, and of sums in float32."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm.target import Target

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.core.numerics import Numerics
from pipeline.errors import BuildError
from pipeline.executor import host_target
from pipeline.split import extract
from pipeline.split.extract import GraphPart
from tests.executor.kernels.test_targets import assembly
from tests.support.onnx_models import by_onnxruntime, node, save, weights
from tests.support.random_networks import by_cores, eager_microarchitecture

pytestmark = pytest.mark.thorough

BFLOAT16 = Numerics("bfloat16")
FLAGS = {"amx": "amx_bf16", "avx512": "avx512_bf16"}
WAYS = [
    pytest.param(way, marks=pytest.mark.skipif(flag not in host_target.flags(), reason=f"this processor has no {flag}"))
    for way, flag in FLAGS.items()
]
MARGINS = {"pads": [1] * 4}
LAYERS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "pointwise": ("Conv", (2, 72, 7, 5), (20, 72, 1, 1), {}),
    "few pixels": ("Conv", (1, 64, 3, 3), (40, 64, 1, 1), {}),
    "narrow": ("Conv", (1, 64, 3, 4), (64, 64, 3, 3), MARGINS),
    "square": ("Conv", (1, 32, 9, 11), (24, 32, 3, 3), MARGINS),
    "wide": ("Conv", (1, 16, 5, 230), (24, 16, 3, 3), MARGINS),
    "strided": ("Conv", (1, 16, 9, 11), (24, 16, 3, 3), {"strides": [2, 2]}),
    "skipping": ("Conv", (1, 48, 15, 14), (33, 48, 1, 1), {"strides": [2, 2]}),
    "uneven": ("Conv", (2, 64, 33, 29), (48, 32, 5, 5),
               {"strides": [2, 3], "pads": [1, 2, 3, 2], "group": 2, "dilations": [2, 2]}),
    "odd": ("Conv", (1, 37, 6, 6), (9, 37, 3, 3), MARGINS),
    "poorly divisible": ("Conv", (1, 58, 20, 20), (58, 58, 1, 1), {}),
    "many channels": ("Conv", (1, 256, 7, 7), (512, 256, 3, 3), MARGINS),
    "grouped": ("Conv", (1, 72, 10, 6), (48, 36, 3, 3), {"group": 2, **MARGINS}),
    "upsampling": ("ConvTranspose", (1, 32, 9, 11), (32, 24, 2, 2), {"strides": [2, 2]}),
    "overlapping": ("ConvTranspose", (2, 64, 7, 5), (64, 20, 3, 3),
                    {"strides": [2, 2], "output_padding": [1, 1], "group": 2, **MARGINS}),
    "dense": ("MatMul", (5, 130), (130, 33), {}),
    "sequences": ("MatMul", (2, 3, 25, 64), (64, 96), {}),
}  # fmt: skip
"""Name -> operator, shapes of data and weights, and attributes."""


def round_to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Return values rounded to eight bits, as float32."""
    mantissa, exponent = np.frexp(values.astype(np.float64))
    result: np.ndarray = np.ldexp(np.rint(mantissa * 256) / 256, exponent).astype(np.float32)
    return result


def part_of(name: str, folder: Path) -> tuple[Path, GraphPart]:
    kind, data, shape, attributes = LAYERS[name]
    factors = {"w": round_to_bfloat16(weights(*shape))}
    file = save(folder / "model.onnx", [node(kind, "x w", "y", **attributes)], {"x": data}, ["y"], factors)
    return file, extract.parts(pipeline.read(file), [])[0]


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.one_in(3)
def test_products_of_bfloat16_are_exact(way: str, name: str, tmp_path: Path) -> None:
    file, part = part_of(name, tmp_path)
    frame = np.random.default_rng(0).standard_normal(LAYERS[name][1]).astype(np.float32)
    result = by_cores(part, {"x": frame}, 2, eager_microarchitecture(pairs=way), BFLOAT16)
    expected = by_onnxruntime(file, {"x": round_to_bfloat16(frame)})["y"]
    assert np.abs(result - expected).max() < 2e-6 * np.abs(expected).max()
    # The same of numbers that were not rounded would be no bfloat16.
    assert np.abs(result - by_onnxruntime(file, {"x": frame})["y"]).max() > 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("name", ["square", "uneven", "odd", "wide", "many channels", "overlapping", "sequences"])
@pytest.mark.parametrize("way", WAYS[:1])
def test_float32_layers_are_sums_of_two_bfloat16(way: str, name: str, tmp_path: Path) -> None:
    kind, data, shape, attributes = LAYERS[name]
    factors = {"w": weights(*shape)}
    file = save(tmp_path / "model.onnx", [node(kind, "x w", "y", **attributes)], {"x": data}, ["y"], factors)
    frame = {"x": np.random.default_rng(0).standard_normal(data).astype(np.float32)}
    part = extract.parts(pipeline.read(file), [])[0]
    numerics = Numerics("bfloat16", float32_layers=("y",))
    result = by_cores(part, frame, 2, eager_microarchitecture(pairs=way), numerics)
    expected = by_onnxruntime(file, frame)["y"]
    # Two of 8 bits have 16, and the 24 of float32 would be exact to 1e-7.
    assert 3e-7 < np.abs(result - expected).max() / np.abs(expected).max() < 1e-5


@pytest.mark.parametrize(
    ("left", "right", "axes"),
    [
        ((2, 3, 37, 64), (2, 3, 64, 50), None),
        ((3, 20, 49), (3, 49, 33), None),
        ((5, 18, 49), (49, 16), None),
        ((2, 3, 37, 64), (2, 3, 50, 64), (0, 1, 3, 2)),
        ((1, 197, 2, 32), (1, 197, 2, 32), (0, 2, 3, 1)),
    ],
)
@pytest.mark.parametrize("way", WAYS[:1])
def test_products_of_two_activations_are_exact(
    way: str, left: tuple[int, ...], right: tuple[int, ...], axes: tuple[int, ...] | None, tmp_path: Path
) -> None:
    nodes = [node("MatMul", "a b" if axes is None else "a t", "y")]
    if axes is not None:
        nodes.insert(0, node("Transpose", "b", "t", perm=axes))
        # A head's rows need not be neighbours either.
        is_apart = axes == (0, 2, 3, 1)
        nodes = [*([node("Transpose", "x", "a", perm=(0, 2, 1, 3))] if is_apart else []), *nodes]
    inputs = {"x" if len(nodes) == 3 else "a": left, "b": right}
    file = save(tmp_path / "model.onnx", nodes, inputs, ["y"])
    random = np.random.default_rng(0)
    frame = {name: random.standard_normal(shape).astype(np.float32) for name, shape in inputs.items()}
    part = extract.parts(pipeline.read(file), [])[0]
    result = by_cores(part, frame, 2, eager_microarchitecture(pairs=way), BFLOAT16)
    expected = by_onnxruntime(file, {name: round_to_bfloat16(values) for name, values in frame.items()})["y"]
    assert np.abs(result - expected).max() < 2e-6 * np.abs(expected).max()
    assert np.abs(result - by_onnxruntime(file, frame)["y"]).max() > 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("way", WAYS)
def test_values_between_layers_are_rounded_for_all_their_readers(way: str, tmp_path: Path) -> None:
    """A residual block reads its input twice; both times it is the same number."""
    nodes = [
        node("Conv", "x a", "t", pads=[1] * 4), node("Relu", "t", "u"), node("Conv", "u b", "v"),
        node("Add", "v u", "y"),
    ]  # fmt: skip
    constants = {"a": round_to_bfloat16(weights(32, 16, 3, 3)), "b": round_to_bfloat16(weights(32, 32, 1, 1))}
    first = save(tmp_path / "first.onnx", nodes[:2], {"x": (1, 16, 9, 9)}, ["u"], {"a": constants["a"]})
    second = save(tmp_path / "second.onnx", nodes[2:], {"u": (1, 32, 9, 9)}, ["y"], {"b": constants["b"]})
    file = save(tmp_path / "model.onnx", nodes, {"x": (1, 16, 9, 9)}, ["y"], constants)
    frame = round_to_bfloat16(np.random.default_rng(0).standard_normal((1, 16, 9, 9)))
    between = by_onnxruntime(first, {"x": frame})["u"]
    part = extract.parts(pipeline.read(file), [])[0]
    result = by_cores(part, {"x": frame}, 1, eager_microarchitecture(pairs=way), BFLOAT16)
    expected = by_onnxruntime(second, {"u": round_to_bfloat16(between)})["y"]
    # Sums near the middle of two numbers of bfloat16 may be rounded to either.
    assert np.mean(np.abs(result - expected) > 2e-6 * np.abs(expected).max()) < 0.05
    assert np.abs(result - expected).max() < 5e-3 * np.abs(expected).max()


@pytest.mark.parametrize("way", WAYS)
def test_layers_stay_float32_by_name(way: str, tmp_path: Path) -> None:
    file, part = part_of("square", tmp_path)
    frame = np.random.default_rng(0).standard_normal(LAYERS["square"][1]).astype(np.float32)
    exempt = replace(BFLOAT16, float32_layers=("y",))
    result = by_cores(part, {"x": frame}, 1, eager_microarchitecture(pairs=way), exempt)
    expected = by_onnxruntime(file, {"x": frame})["y"]
    # By Winograd's transforms.
    assert np.abs(result - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("target", "instruction"),
    [({"kind": "llvm", "mcpu": "sapphirerapids"}, "tdpbf16ps"), ({"kind": "llvm", "mcpu": "znver4"}, "vdpbf16ps"),
     ({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n2"}, "bfmmla")],
)  # fmt: skip
def test_processors_have_instructions_of_their_own(target: dict[str, str], instruction: str, tmp_path: Path) -> None:
    text = assembly(extract.module(part_of("square", tmp_path)[1]), Target(target), numerics=BFLOAT16)
    assert re.search(rf"\s{instruction}\s", text)
    # What adds up products is no function of its own.
    assert "soc_pairs" not in text


@pytest.mark.parametrize("mcpu", ["haswell", "skylake-avx512"])
def test_processors_without_it_are_refused(mcpu: str, tmp_path: Path) -> None:
    graph = pipeline.read(part_of("square", tmp_path)[0])
    board = Board("board", (Device("cpu", cores=(0,), target={"kind": "llvm", "mcpu": mcpu}),))
    plan = pipeline.plan(graph, board, stages=1)
    with pytest.raises(BuildError, match=rf"precision is bfloat16, which {mcpu} does not .*AVX512-BF16.*float32"):
        pipeline.build(graph, plan, check=False, precision="bfloat16")
