"""Quantised convolutions whose images have their channels last in the model: exact, and computed as integers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from tvm import relax

from tests.support.quantized_models import Product, convolution
from tests.support.random_seeds import seeds
from tests.support.relax_models import constant, kernels, module, run

TO_LAST = (0, 2, 3, 1)


def chain(product: Product, order: str) -> Any:
    """Return what makes a product in Relax, with channels last and its weights' axes in an order."""
    constants, attributes = product.constants, product.attributes
    turned = constants["wq"].transpose(["OIHW".index(axis) for axis in order])
    bias = constants["bq"].astype(np.float32) * constants["sb"]

    def make(emit: Any, x: Any) -> Any:
        sx, zx, sw, zw, sy, zy = (constant(constants[name]) for name in ("sx", "zx", "sw", "zw", "sy", "zy"))
        data = emit(relax.op.quantize(x, sx, zx, 3, str(constants["zx"].dtype)))
        data = emit(relax.op.dequantize(data, sx, zx, 3, "float32"))
        weights = emit(relax.op.dequantize(constant(turned), sw, zw, order.index("O"), "float32"))
        sums = relax.op.nn.conv2d(
            data, weights, attributes["strides"], attributes["pads"], attributes["dilations"],
            attributes["group"], data_layout="NHWC", kernel_layout=order,
        )  # fmt: skip
        sums = emit(relax.op.add(emit(sums), constant(np.broadcast_to(bias, product.outputs))))
        sums = emit(relax.op.nn.relu(sums)) if product.relu else sums
        return emit(relax.op.quantize(sums, sy, zy, 3, str(constants["zy"].dtype)))

    return make


@pytest.mark.parametrize("seed", seeds(3, 8))
def test_result_is_exact(seed: int) -> None:
    draw = random.Random(f"last{seed}")
    product, order = convolution(draw), draw.choice(("HWIO", "HWOI", "OHWI"))
    frame = product.frame()
    values = {"x": np.ascontiguousarray(frame.transpose(TO_LAST))}
    stage = module(values, chain(product, order))
    np.testing.assert_array_equal(run(stage, values), product.compute_reference(frame).transpose(TO_LAST))
    assert {"convolution", "depthwise"}.intersection(kernels(stage).values())
    assert not [name for name in kernels(stage) if "transpose" in name]
