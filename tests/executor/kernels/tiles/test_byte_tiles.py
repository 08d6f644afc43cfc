"""Products of bytes by AMX: exact also where tiles are cut, padded or hold several lines."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm.target import Target

import pipeline
from pipeline.executor import host_target
from pipeline.split import extract
from tests.executor.kernels.test_targets import assembly
from tests.support.quantized_models import Product, scales
from tests.support.random_networks import by_cores, eager_microarchitecture

PLAIN: dict[str, Any] = {"group": 1, "dilations": [1, 1], "strides": [1, 1], "pads": [0] * 4}
MARGINS = {"pads": [1] * 4}
LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "pointwise": ((2, 72, 7, 5), (20, 72, 1, 1), {}),
    "one row": ((1, 64, 1, 9), (16, 64, 1, 1), {}),
    "few pixels": ((1, 128, 3, 3), (40, 128, 1, 1), {}),
    "square": ((1, 64, 9, 11), (24, 64, 3, 3), MARGINS),
    "wide": ((1, 32, 5, 230), (24, 32, 3, 3), MARGINS),
    "skipping": ((1, 96, 15, 14), (33, 96, 1, 1), {"strides": [2, 2]}),
    "uneven": ((2, 128, 33, 29), (48, 64, 5, 5),
               {"strides": [2, 3], "pads": [1, 2, 3, 2], "group": 2, "dilations": [2, 2]}),
    "odd": ((1, 37, 6, 6), (19, 37, 3, 3), MARGINS),
    "a picture": ((1, 3, 23, 21), (64, 3, 7, 7), {"strides": [2, 2], "pads": [3] * 4}),
    "poorly divisible": ((1, 116, 20, 20), (58, 116, 1, 1), {}),
    "many channels": ((1, 512, 7, 7), (512, 512, 3, 3), MARGINS),
    "dense": ((5, 130), (130, 33), {}),
}  # fmt: skip
"""Name -> shapes of data and weights, and attributes of a convolution."""

ZEROS = [np.uint8(97), np.int8(-5), np.uint8(255), np.int8(127), np.uint8(0)]
"""Zero points of data."""


def product(name: str, zero: np.ndarray) -> Product:
    """Return a layer whose data have that zero point, with weights of all signed bytes."""
    shape, factors, attributes = LAYERS[name]
    is_dense = len(shape) == 2
    outputs = factors[1 if is_dense else 0]
    constants = scales(random.Random(name), outputs, int(np.prod(factors)) // outputs)
    weights = np.random.default_rng(0).integers(-128, 128, factors).astype(np.int8)
    constants |= {"wq": weights, "zx": zero}
    if is_dense:
        return Product("Gemm", {}, shape, (outputs,), constants)
    attributes = {**PLAIN, "kernel_shape": factors[2:], **attributes}
    return Product("Conv", attributes, shape, (outputs,), constants, relu=True)


@pytest.mark.skipif("amx_int8" not in host_target.flags(), reason="this processor has no amx_int8")
@pytest.mark.parametrize(("name", "zero"), list(zip(LAYERS, itertools.cycle(ZEROS), strict=False)))
@pytest.mark.one_in(2)
def test_sums_by_tiles_are_exact(name: str, zero: Any, tmp_path: Path) -> None:
    layer = product(name, np.array(zero))
    part = extract.parts(pipeline.read(layer.save(tmp_path / "model.onnx")), [])[0]
    frame = layer.frame()
    result = by_cores(part, {"x": frame}, 2, eager_microarchitecture(dots="amx"))
    np.testing.assert_array_equal(result, layer.compute_reference(frame))


@pytest.mark.parametrize(
    ("name", "mcpu", "has_tiles"),
    [("square", "sapphirerapids", True), ("one row", "sapphirerapids", True), ("square", "icelake-server", False)],
)
def test_processors_with_amx_multiply_by_tiles(name: str, mcpu: str, has_tiles: bool, tmp_path: Path) -> None:
    layer = product(name, np.array(3, np.uint8))
    module = extract.module(extract.parts(pipeline.read(layer.save(tmp_path / "model.onnx")), [])[0])
    text = assembly(module, Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": mcpu}))
    assert ("tdpbusd" in text, "vpdpbusd" in text) == (has_tiles, not has_tiles)
