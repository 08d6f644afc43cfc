"""Convolutions of groups compute what NumPy does, and multiply no more zeros than they must."""

from __future__ import annotations

import numpy as np
import pytest

from boards.vta.compiler.grouped import split_groups
from boards.vta.compiler.layers import Convolution
from boards.vta.compiler.network import LayerStep
from boards.vta.isa.config import ULTRA96
from pipeline.errors import BuildError
from tests.support.vta.checking import check_steps, compile_chain
from tests.support.vta.references import tensor


def random_convolution(channels: int, outputs: int, groups: int, *, stride: int = 1) -> Convolution:
    """Return a random convolution of 3 x 3 with a shift for each channel."""
    weights = tensor((outputs, channels // groups, 3, 3), seed=groups)
    bias = tensor((outputs,), seed=1).astype(np.int32) * 99
    shift = np.resize(np.array([7, 9, 8], np.int8), outputs)
    sizes = {"strides": (stride, stride), "padding": (1, 1, 1, 1)}
    return Convolution((channels, 9, 11), weights, bias, shift, groups=groups, even=True, **sizes)  # type: ignore[arg-type]


CASES = {
    "depthwise": (random_convolution(40, 40, 40), 3),
    "depthwise with strides": (random_convolution(32, 32, 32, stride=2), 2),
    "groups of four": (random_convolution(24, 24, 6), 2),
    "groups of whole blocks": (random_convolution(64, 32, 2), 2),
    "several results for each channel": (random_convolution(10, 30, 10), 1),
    "groups across blocks": (random_convolution(36, 36, 3), 1),
}


@pytest.mark.parametrize(("layer", "count"), CASES.values(), ids=CASES.keys())
def test_groups(layer: Convolution, count: int) -> None:
    assert len(list(split_groups(layer, ULTRA96.block))) == count
    check_steps([layer.inputs], [LayerStep(layer, (0,)), LayerStep(layer, (0,))])


def test_a_depthwise_convolution_takes_one_matrix_for_a_block() -> None:
    layer = random_convolution(64, 64, 64)
    assert compile_chain(ULTRA96, [layer]).macs == 64 * 9 * 9 * 11
    assert sum(part.layer.weights.size for part in split_groups(layer, ULTRA96.block)) == 64 * 16 * 9


def test_groups_that_do_not_fit_are_refused() -> None:
    bias_and_shift = np.zeros(8, np.int32), np.zeros(8, np.int8)
    with pytest.raises(BuildError, match="weights are for 12 channels, and the input has 16"):
        Convolution((16, 4, 4), tensor((8, 3, 1, 1)), *bias_and_shift, groups=4)
    with pytest.raises(BuildError, match="8 outputs cannot be divided into 3 groups"):
        Convolution((9, 4, 4), tensor((8, 3, 1, 1)), *bias_and_shift, groups=3)
