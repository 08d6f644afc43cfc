"""Types of windows are those that TVM infers of other layouts."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tvm import relax

from pipeline.tvm.access import tvm

WINDOWS = list(itertools.product((1, 3), (1, 2), (0, 1), (1, 2), (1, 4)))
"""Size, stride, padding, dilation and groups."""


def infer(call: Any) -> Any:
    return relax.BlockBuilder().normalize(call).ty


def tensor(shape: tuple[int, ...], dtype: str = "float32") -> Any:
    return relax.Var("x", relax.TensorType(shape, dtype))


def in_channels_first(ty: Any) -> tuple[list[int], str]:
    batch, *rest, channels = (int(extent) for extent in ty.shape)
    return [batch, channels, *rest], str(ty.dtype)


@pytest.mark.parametrize("window", WINDOWS)
def test_convolution_has_the_type_of_its_other_layout(window: tuple[int, ...]) -> None:
    size, stride, padding, dilation, groups = window
    options = {"strides": stride, "padding": padding, "dilation": dilation, "groups": groups, "out_dtype": "int32"}
    first = infer(relax.op.nn.conv2d(
        tensor((2, 8, 9, 14), "int8"), tensor((12, 8 // groups, size, 3), "int8"), **options))  # fmt: skip
    last = infer(relax.op.nn.conv2d(
        tensor((2, 9, 14, 8), "int8"), tensor((12, size, 3, 8 // groups), "int8"),
        data_layout="NHWC", kernel_layout="OHWI", **options))  # fmt: skip
    assert ([int(extent) for extent in first.shape], str(first.dtype)) == in_channels_first(last)


@pytest.mark.parametrize("pool", [relax.op.nn.max_pool2d, relax.op.nn.avg_pool2d])
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("window", sorted({window[:4] for window in WINDOWS}))
def test_pooling_has_the_type_of_its_other_layout(pool: Any, ceil_mode: bool, window: tuple[int, ...]) -> None:
    size, stride, padding, dilation = window
    options = {"strides": stride, "padding": padding, "dilation": dilation, "ceil_mode": ceil_mode}
    first = infer(pool(tensor((1, 3, 10, 15)), (size, 2), **options))
    last = infer(pool(tensor((1, 10, 15, 3)), (size, 2), layout="NHWC", **options))
    assert ([int(extent) for extent in first.shape], str(first.dtype)) == in_channels_first(last)


def test_extents_that_vary_are_left_to_tvm() -> None:
    rows = tvm.tirx.Var("rows", "int64")
    call = relax.op.nn.conv2d(tensor((1, 8, rows, 14)), tensor((4, 8, 3, 3)), padding=1)
    assert infer(call).shape[2].same_as(rows)


def test_channels_that_do_not_match_are_refused_by_tvm() -> None:
    with pytest.raises(ValueError, match="channel size of the data"):
        infer(relax.op.nn.conv2d(tensor((1, 8, 9, 14)), tensor((4, 3, 3, 3))))


def test_a_convolution_without_out_dtype_has_its_operands_dtype() -> None:
    assert (
        np.dtype(str(infer(relax.op.nn.conv1d(tensor((1, 8, 9), "float16"), tensor((4, 8, 3), "float16"))).dtype))
        == "float16"
    )
