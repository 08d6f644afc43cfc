"""Quantised models: exact integer sums, rounding as ONNX defines it, and the instructions made for that."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from tvm.target import Target

import pipeline
from pipeline.executor import host_target, kernels
from pipeline.split import extract
from pipeline.tvm.access import compiler_lock
from tests.executor.kernels.test_targets import assembly
from tests.support.onnx_models import by_onnxruntime, in_stages, kinds, node, save
from tests.support.quantized_models import NUMBERS, Product, convolution, dense, depthwise
from tests.support.random_networks import by_cores, eager_microarchitecture
from tests.support.random_seeds import seeds

pytestmark = pytest.mark.thorough

OWN = eager_microarchitecture()
X86 = ["amx", "vnni", "pairs"]
WAYS = list(dict.fromkeys([*(X86[X86.index(OWN.dots) :] if OWN.dots in X86 else [OWN.dots]), "plain"]))
"""In which the host can multiply bytes."""

ARM = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a55", "mattr": ["+neon", "+dotprod"]}
NEWER_ARM = {**ARM, "mcpu": "neoverse-v1", "mattr": ["+neon", "+dotprod", "+i8mm"]}
BY_A_LANE = r"sdot\tv\d+\.4s, v\d+\.16b, v\d+\.4b\[3\]"
OLD_ARM = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a53", "mattr": ["+neon"]}


def kernels_of(graph: Any) -> dict[str, tuple[str, int]]:
    """Return the kernels of a model as one stage."""
    with compiler_lock:
        target = kernels.target_for(host_target.host_target())
        return kernels.kernels(kernels.optimise(extract.module(extract.parts(graph, [])[0]), target))


@pytest.mark.parametrize("seed", seeds(3, 12))
@pytest.mark.parametrize("make", [convolution, dense], ids=lambda make: make.__name__)
def test_result_is_exact(make: Callable[[random.Random], Product], seed: int, tmp_path: Path) -> None:
    product = make(random.Random(f"{make.__name__}{seed}"))
    path = product.save(tmp_path / "model.onnx")
    graph = pipeline.read(path)
    values = {"x": product.frame()}
    result = in_stages(graph, [], values)["y"]
    np.testing.assert_array_equal(result, product.compute_reference(values["x"]))
    expected = by_onnxruntime(path, values, fused=False)["y"]
    assert np.abs(result.astype(int) - expected.astype(int)).max() <= 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [convolution, dense], ids=lambda make: make.__name__)
def test_every_way_of_multiplying_bytes_is_exact(
    make: Callable[[random.Random], Product], way: str, tmp_path: Path
) -> None:
    product = make(random.Random(f"{make.__name__}{way}"))
    graph = pipeline.read(product.save(tmp_path / "model.onnx"))
    part, frame = extract.parts(graph, [])[0], product.frame()
    cpu = eager_microarchitecture(dots=way)
    np.testing.assert_array_equal(by_cores(part, {"x": frame}, 1, cpu), product.compute_reference(frame))


@pytest.mark.parametrize("seed", seeds(6, 30))
@pytest.mark.one_in(2)
def test_depthwise_products_in_16_bits_are_exact(seed: int, tmp_path: Path) -> None:
    """As on Arm; this part of its code runs on every processor."""
    product = depthwise(random.Random(f"depthwise{seed}"))
    graph = pipeline.read(product.save(tmp_path / "model.onnx"))
    part, cpu = extract.parts(graph, [])[0], eager_microarchitecture(dots="mlal")
    lowest = np.full(product.shape, -1e3, np.float32)
    for frame in (product.frame(), lowest):
        np.testing.assert_array_equal(by_cores(part, {"x": frame}, 2, cpu), product.compute_reference(frame))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_depthwise_products_of_integer_operators_are_exact(dtype: str, tmp_path: Path) -> None:
    limits, generator = np.iinfo(dtype), np.random.default_rng(3)
    x = generator.integers(limits.min, limits.max + 1, (1, 24, 9, 8)).astype(dtype)
    w, zero = generator.integers(-120, 121, (24, 1, 3, 3)).astype(np.int8), limits.min + 9
    constants = {"w": w, "xz": np.array(zero, dtype), "wz": np.array(7, np.int8)}
    nodes = [node("ConvInteger", "x w xz wz", "y", group=24, pads=[1] * 4)]
    kinds = {"x": NUMBERS[dtype], "y": TensorProto.INT32}
    path = save(tmp_path / "model.onnx", nodes, {"x": x.shape}, ["y"], constants, dtypes=kinds)
    part = extract.parts(pipeline.read(path), [])[0]
    padded = np.pad(x.astype(np.int64) - zero, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    expected = np.einsum("nchwij,cij->nchw", windows, w[:, 0].astype(np.int64) - 7)
    np.testing.assert_array_equal(by_cores(part, {"x": x}, 1, eager_microarchitecture(dots="mlal")), expected)


def test_depthwise_sums_are_of_bytes_on_arm(tmp_path: Path) -> None:
    graph = pipeline.read(depthwise(random.Random("depthwise0")).save(tmp_path / "model.onnx"))
    module = extract.module(extract.parts(graph, [])[0])
    with compiler_lock:
        for target in (ARM, NEWER_ARM, OLD_ARM):
            names = [name for name, _ in kernels.kernels(kernels.optimise(module, Target(target))).values()]
            assert "depthwise_bytes" in names


def test_halves_are_rounded_to_even(tmp_path: Path) -> None:
    constants = {"s": np.float32(1).reshape(()), "z": np.array(10, np.uint8)}
    path = save(
        tmp_path / "model.onnx", [node("QuantizeLinear", "x s z", "y")], {"x": (1, 6)}, ["y"], constants,
        dtypes={"y": TensorProto.UINT8},
    )  # fmt: skip
    values = {"x": np.array([[-2.5, -1.5, -0.5, 0.5, 1.5, 2.5]], np.float32)}
    assert in_stages(pipeline.read(path), [], values)["y"].tolist() == [[8, 8, 10, 10, 12, 12]]


CONSTANTS = {
    "s": np.float32(0.05).reshape(()),
    "t": np.float32(0.11).reshape(()),
    "z": np.array(-7, np.int8),
    "w": np.random.default_rng(0).integers(-128, 128, (12, 12, 3, 3)).astype(np.int8),
    "v": np.full(12, 0.002, np.float32),
    "n": np.zeros(12, np.int8),
}
START = [
    node("QuantizeLinear", "x s z", "a"),
    node("DequantizeLinear", "a s z", "b"),
    node("DequantizeLinear", "w v n", "u", axis=0),
]
CONV = node("Conv", "b u", "c", pads=[1, 1, 1, 1])
END = [node("QuantizeLinear", "d t z", "e"), node("DequantizeLinear", "e t z", "y")]
BYTES = [node("QuantizeLinear", "c t z", "f"), node("DequantizeLinear", "f t z", "g")]
SAME = [node("QuantizeLinear", "d s z", "e"), node("DequantizeLinear", "e s z", "y")]
CASES: dict[str, list[Any]] = {
    "a sum with what went in": [*START, CONV, *BYTES, node("Add", "g b", "d"), *END],
    "a sum, cut at zero": [*START, CONV, *BYTES, node("Add", "g b", "h"), node("Relu", "h", "d"), *END],
    "largest of a window": [*START, node("MaxPool", "b", "d", kernel_shape=[3, 3], pads=[1, 1, 1, 1]), *SAME],
    "mean of a window": [*START, node("AveragePool", "b", "d", kernel_shape=[3, 3], strides=[2, 2]), *END],
    "mean of all": [*START, node("GlobalAveragePool", "b", "d"), *END],
    "side by side": [*START, CONV, *BYTES, node("Concat", "b g", "d", axis=1), *END],
    "side by side, on one scale": [*START, node("Concat", "b b", "d", axis=1), *SAME],
    "in a row": [*START, node("Flatten", "b", "d"), *SAME],
    "not quantised again": [*START, CONV, node("Sigmoid", "c", "y")],
    "only the weights": [START[2], node("Conv", "x u", "y")],
    "read twice": [*START, CONV, node("Conv", "b u", "i", pads=[1, 1, 1, 1]), node("Add", "c i", "d"), *END],
}


@pytest.mark.parametrize("case", CASES)
def test_other_operators_differ_by_a_step_at_most(case: str, tmp_path: Path) -> None:
    path = save(tmp_path / "model.onnx", CASES[case], {"x": (2, 12, 9, 10)}, ["y"], CONSTANTS)
    values = {"x": np.random.default_rng(1).standard_normal((2, 12, 9, 10)).astype(np.float32) * 3}
    graph = pipeline.read(path)
    expected = by_onnxruntime(path, values, fused=False)["y"]
    for positions in ((), graph.group_ends[:-1]):
        result = in_stages(graph, positions, values)["y"]
        assert np.abs(result - expected).max() <= 0.1101


@pytest.mark.parametrize("seed", seeds(4, 20))
def test_bytes_are_joined_as_bytes_and_rounded_as_numbers_would_be(seed: int, tmp_path: Path) -> None:
    generator = np.random.default_rng(seed)
    s, t = (np.array(generator.uniform(0.01, 0.1), np.float32) for _ in range(2))
    constants = {"s": s, "t": np.array(s / 2, np.float32) if seed == 0 else t, "z": CONSTANTS["z"]}
    pool = [node("MaxPool", "b", "p", kernel_shape=[1, 1]), node("QuantizeLinear", "p s z", "f")]
    nodes = [*START[:2], *pool, node("DequantizeLinear", "f s z", "g"), node("Concat", "g g", "d", axis=1), *END]
    path = save(tmp_path / "model.onnx", nodes, {"x": (1, 4, 8, 8)}, ["y"], constants)
    numbers = np.arange(-128 + 7, 128 + 7).astype(np.float32) * constants["s"]
    graph, frame = pipeline.read(path), numbers.reshape(1, 4, 8, 8)
    rounded = np.clip(np.rint(np.concatenate([frame, frame], 1) / constants["t"]), -121, 134)
    expected = rounded.astype(np.float32) * constants["t"]
    np.testing.assert_array_equal(in_stages(graph, [], {"x": frame})["y"], expected)
    with compiler_lock:
        stage = kernels.optimise(extract.module(extract.parts(graph, [])[0]), host_target.host_target())
    (joining,) = (function for name, function in stage.functions.items() if "concat" in str(name.name_hint))
    assert {str(param.dtype) for param in joining.params[:-1]} == {"uint8"}, "as both kinds are read"


def test_maximum_and_reshaping_work_on_bytes(tmp_path: Path) -> None:
    for case, kind in (("largest of a window", "max_pool2d"), ("in a row", "reshape")):
        graph = pipeline.read(save(tmp_path / f"{kind}.onnx", CASES[case], {"x": (2, 12, 9, 10)}, ["y"], CONSTANTS))
        assert kinds(graph) == ["quantize", kind, "dequantize"]


def test_bytes_cross_the_cuts_and_weights_stay_integers(tmp_path: Path) -> None:
    nodes = CASES["a sum with what went in"]
    graph = pipeline.read(save(tmp_path / "model.onnx", nodes, {"x": (2, 12, 9, 10)}, ["y"], CONSTANTS))
    crossing_tensors = [spec for part in extract.parts(graph, graph.group_ends[:-1])[1:] for spec in part.inputs]
    assert {spec.dtype for spec in crossing_tensors} == {"uint8"}
    assert sum(each.parameter_bytes for each in graph.operators) < 2 * CONSTANTS["w"].nbytes
    assert ("convolution", 2 * 2 * 9 * 10 * 12 * 12 * 9) in kernels_of(graph).values()


@pytest.mark.parametrize(
    ("described", "instruction"),
    [(ARM, BY_A_LANE), (NEWER_ARM, "usmmla"), (OLD_ARM, "smlal2"),
     ({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "icelake-server"}, "vpdpbusd"),
     ({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "haswell"}, "vpmaddwd")],
)  # fmt: skip
def test_the_processor_has_an_instruction_for_it(described: Any, instruction: str, tmp_path: Path) -> None:
    import re

    product = convolution(random.Random("convolution0"))
    module = extract.module(extract.parts(pipeline.read(product.save(tmp_path / "model.onnx")), [])[0])
    text = assembly(module, Target(described))
    assert re.search(rf"\s{instruction}\s", text)
