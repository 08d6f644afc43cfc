"""Pooling and normalization against NumPy, written from their definitions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.relay_programs import apply, random

pytestmark = pytest.mark.thorough

IMAGE = random(2, 4, 7, 6)
REDUCE: dict[str, Callable[..., Any]] = {"max": np.max, "avg": np.mean}


def pool(
    x: np.ndarray, reduce: Callable[..., Any], out: Sequence[int], *, size: int, stride: int, pad: int
) -> np.ndarray:
    """Pool over windows of which the part outside of the image is left out."""
    result = np.zeros((*x.shape[:2], *out))
    for position in itertools.product(*map(range, out)):
        edges = zip(position, x.shape[2:], strict=True)
        window: Any = (
            ...,
            *(slice(max(at * stride - pad, 0), min(at * stride - pad + size, end)) for at, end in edges),
        )
        pixel: Any = (..., *position)
        result[pixel] = reduce(x[window], axis=tuple(range(2, x.ndim)))
    return result


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pooling(axes: int, kind: str) -> None:
    x = random(1, 2, *(7, 6, 5)[:axes])
    attributes = ", ".join(
        f"{name}=[{', '.join([str(value)] * axes)}]"
        for name, value in (("pool_size", 3), ("strides", 2), ("padding", 1))
    )
    out = [(extent + 2 - 3) // 2 + 1 for extent in x.shape[2:]]
    reference = pool(x, REDUCE[kind], out, size=3, stride=2, pad=1)
    np.testing.assert_allclose(apply(f"nn.{kind}_pool{axes}d(%a, {attributes})", x), reference, rtol=1e-5, atol=1e-6)


def test_pooling_with_the_rim_and_beyond_the_end() -> None:
    output = apply("nn.avg_pool2d(%a, pool_size=[3, 3], strides=[2, 2], padding=[1, 1], count_include_pad=True)", IMAGE)
    padded_data = np.pad(IMAGE, [(0, 0), (0, 0), (1, 1), (1, 1)])
    np.testing.assert_allclose(
        output, pool(padded_data, np.mean, [4, 3], size=3, stride=2, pad=0), rtol=1e-4, atol=1e-6
    )
    output = apply("nn.max_pool2d(%a, pool_size=[3, 3], strides=[2, 2], ceil_mode=True)", IMAGE)
    np.testing.assert_array_equal(output, pool(IMAGE, np.max, [3, 3], size=3, stride=2, pad=0).astype(np.float32))


def test_pooling_with_the_channels_last() -> None:
    output = apply('nn.max_pool2d(%a, pool_size=[2, 2], layout="NHWC")', IMAGE.transpose(0, 2, 3, 1))
    reference = pool(IMAGE, np.max, [6, 5], size=2, stride=1, pad=0).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(output, reference.astype(np.float32))


def test_pooling_over_everything() -> None:
    np.testing.assert_allclose(apply("nn.global_avg_pool2d(%a)", IMAGE), IMAGE.mean((2, 3), keepdims=True), rtol=1e-4)
    output = apply('nn.global_max_pool2d(%a, layout="NHWC")', IMAGE.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(output, IMAGE.max((2, 3)).reshape(2, 1, 1, 4))


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("size", [(1, 1), (7, 3), (3, 4)])
def test_pooling_to_a_size(kind: str, size: tuple[int, int]) -> None:
    reference = np.zeros((2, 4, *size))
    for row, column in itertools.product(*map(range, size)):
        rows = slice(row * 7 // size[0], -(-(row + 1) * 7 // size[0]))
        columns = slice(column * 6 // size[1], -(-(column + 1) * 6 // size[1]))
        reference[:, :, row, column] = REDUCE[kind](IMAGE[:, :, rows, columns], axis=(2, 3))
    output = apply(f"nn.adaptive_{kind}_pool2d(%a, output_size=[{size[0]}, {size[1]}])", IMAGE)
    np.testing.assert_allclose(output, reference, rtol=1e-4, atol=1e-6)


def normalize(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return np.asarray((x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5))


GAMMA, BETA = random(4, seed=2), random(4, seed=3)
TALL = (slice(None), None, None)


@pytest.mark.parametrize(
    ("attributes", "scale", "shift"), [("", 1, 1), (", scale=False", 0, 1), (", center=False", 1, 0)]
)
def test_batch_norm(attributes: str, scale: int, shift: int) -> None:
    mean, variance = random(4, seed=4), np.abs(random(4, seed=5))
    output = apply(
        f"nn.batch_norm(%a, %g, %s, %m, %v, epsilon=0.001f{attributes}).0", IMAGE, g=GAMMA, s=BETA, m=mean, v=variance
    )
    reference = (IMAGE - mean[TALL]) / np.sqrt(variance[TALL] + 0.001)
    reference = reference * (GAMMA[TALL] if scale else 1) + (BETA[TALL] if shift else 0)
    np.testing.assert_allclose(output, reference, rtol=1e-4, atol=1e-5)


def test_other_norms() -> None:
    last = IMAGE.transpose(0, 2, 3, 1).copy()
    output = apply("nn.layer_norm(%a, %g, %s)", last, g=GAMMA, s=BETA)
    np.testing.assert_allclose(output, normalize(last, (3,)) * GAMMA + BETA, rtol=1e-4, atol=1e-5)
    output = apply("nn.layer_norm(%a, %g, %s, scale=False, center=False)", last, g=GAMMA, s=BETA)
    np.testing.assert_allclose(output, normalize(last, (3,)), rtol=1e-4, atol=1e-5)
    output = apply("nn.instance_norm(%a, %g, %s)", IMAGE, g=GAMMA, s=BETA)
    np.testing.assert_allclose(output, normalize(IMAGE, (2, 3)) * GAMMA[TALL] + BETA[TALL], rtol=1e-4, atol=1e-4)
    output = apply("nn.group_norm(%a, %g, %s, num_groups=2)", IMAGE, g=GAMMA, s=BETA)
    groups_of_rows = normalize(IMAGE.reshape(2, 2, 2, 7, 6), (2, 3, 4)).reshape(IMAGE.shape)
    np.testing.assert_allclose(output, groups_of_rows * GAMMA[TALL] + BETA[TALL], rtol=1e-4, atol=1e-4)


def test_length_and_neighbours() -> None:
    output = apply("nn.l2_normalize(%a, eps=1e-10f, axis=[1])", IMAGE)
    np.testing.assert_allclose(output, IMAGE / np.sqrt((IMAGE**2).sum(1, keepdims=True)), rtol=1e-4)
    squares = np.pad(IMAGE**2, [(0, 0), (1, 1), (0, 0), (0, 0)])
    total = sum(squares[:, start : start + 4] for start in range(3))
    output = apply("nn.lrn(%a, size=3, alpha=0.1f, beta=0.75f, bias=2f)", IMAGE)
    np.testing.assert_allclose(output, IMAGE / (2 + 0.1 * total / 3) ** 0.75, rtol=1e-4)


@pytest.mark.parametrize("axis", [-1, 1])
def test_softmax(axis: int) -> None:
    shares = np.exp(IMAGE) / np.exp(IMAGE).sum(axis, keepdims=True)
    np.testing.assert_allclose(apply(f"nn.softmax(%a, axis={axis})", IMAGE), shares, rtol=1e-4)
    np.testing.assert_allclose(apply(f"nn.log_softmax(%a, axis={axis})", IMAGE), np.log(shares), rtol=1e-4, atol=1e-5)


def test_defaults_that_the_text_leaves_out() -> None:
    """TVM prints an attribute only where it differs from the default in C++, not from that of the Python functions."""
    np.testing.assert_array_equal(
        apply("nn.lrn(%a)", IMAGE), apply("nn.lrn(%a, size=5, axis=1, alpha=0.0001f, beta=0.75f, bias=2f)", IMAGE)
    )
