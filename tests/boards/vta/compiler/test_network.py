"""Compiled layers compute what NumPy does, bit for bit, on a board, however its modules interleave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boards.vta import Config, simulate
from boards.vta.compiler.epilogue import bias_inputs, bias_weights
from boards.vta.compiler.layers import Addition, Convolution, MaxPool
from boards.vta.compiler.network import LayerStep, compile_network
from boards.vta.isa.config import PYNQ, ULTRA96
from pipeline.errors import BuildError
from tests.support.vta.building import BATCHED
from tests.support.vta.checking import check_steps, compile_chain
from tests.support.vta.references import layer, tensor


def check(*layers: Convolution, config: Config = ULTRA96, seed: int | None = None) -> None:
    steps = [LayerStep(layer, (number,)) for number, layer in enumerate(layers)]
    check_steps([layers[0].inputs], steps, config=config, seed=seed)


@st.composite
def layers(draw: st.DrawFn) -> Convolution:
    kernel = draw(st.sampled_from([1, 1, 2, 3, 3, 4, 5, 7]))
    widest = draw(st.sampled_from([16, 48, 200]))
    channels, outputs = draw(st.integers(1, widest)), draw(st.integers(1, widest))
    height, width = draw(st.integers(kernel, kernel + 20)), draw(st.integers(kernel, kernel + 40))
    pads = st.integers(0, kernel - 1)
    options: dict[str, Any] = {"strides": draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))}
    options |= {"padding": draw(st.tuples(pads, pads, pads, pads)), "low": draw(st.sampled_from([-128, 0, -5]))}
    options["even"] = draw(st.booleans())
    shifts = draw(st.just([draw(st.integers(0, 31))]) | st.lists(st.integers(0, 15), min_size=2, max_size=9))
    options["shift"] = np.resize(np.array(shifts, np.int8), outputs)
    if draw(st.booleans()):
        options["bias"] = np.resize(np.array([2**31 - 1, -(2**31), 241_300, -5], np.int64), outputs).astype(np.int32)
    return layer((channels, height, width), outputs, kernel, draw(st.integers(0, 9)), **options)


@settings(max_examples=60, deadline=None)
@given(convolution=layers(), config=st.sampled_from([PYNQ, ULTRA96]), seed=st.none() | st.integers(0, 99))
def test_random_layers(convolution: Convolution, config: Config, seed: int | None) -> None:
    check(convolution, config=config, seed=seed)


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(convolution=layers(), config=st.sampled_from([PYNQ, ULTRA96]), seed=st.none() | st.integers(0, 99))
def test_many_random_layers(convolution: Convolution, config: Config, seed: int | None) -> None:
    check(convolution, config=config, seed=seed)


@pytest.mark.parametrize("config", [PYNQ, ULTRA96])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("seed", [None, 0, 1])
@pytest.mark.one_in(2)
def test_first_layers_on_pictures(config: Config, channels: int, seed: int | None) -> None:
    """Channels are filled up to a block; what stands in the others' place must not count."""
    shift = np.resize(np.array([7, 9, 12], np.int8), 64)
    first = layer((channels, 45, 61), 64, 7, 0, strides=(2, 2), padding=(3, 3, 3, 3), shift=shift, low=0, even=True)
    check(first, config=config, seed=seed)


@pytest.mark.parametrize("shift", [1, 2, 5, 15, 16])
def test_halves_become_even(shift: int) -> None:
    """The weight is a half of a result: every second value lies halfway."""
    weights = np.diag(np.full(16, 64, np.int8)).reshape(16, 16, 1, 1)
    bias = np.full(16, 1 << (shift - 1), np.int32) if shift > 7 else np.zeros(16, np.int32)
    convolution = Convolution((16, 5, 8), weights, bias, np.full(16, shift, np.int8), even=True)
    check(convolution, replace(convolution, inputs=(16, 5, 8), shift=np.arange(16).astype(np.int8)))


@pytest.mark.parametrize(
    ("weight", "bias", "shift", "may_tie"),
    [(1, 0, 1, True), (2, 1, 2, False), (2, 2, 2, True), (2, 1, 1, True), (5, 3, 0, False), (0, 4, 3, True)],
)
def test_where_no_sum_lies_halfway_nothing_is_made_even(weight: int, bias: int, shift: int, may_tie: bool) -> None:
    weights, sum_layer = (
        np.full((1, 1, 1, 1), weight, np.int8),
        (np.array([bias], np.int32), np.array([shift], np.int8)),
    )
    convolution = Convolution((1, 1, 1), weights, *sum_layer, even=True)
    assert convolution.requantization.even == may_tie


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_layers_follow_each_other(seed: int | None) -> None:
    first = layer((20, 19, 17), 40, padding=(1, 1, 1, 1), low=0)
    second = layer((40, 19, 17), 64, strides=(2, 2), padding=(1, 1, 1, 1))
    last = layer((64, 10, 9), 10, 1)
    check(first, second, last, seed=seed)


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_branches_meet_again(seed: int | None) -> None:
    """A residual block with a strided short cut, behind a max pool."""
    pool = MaxPool((20, 19, 17), (3, 3), (2, 2), (1, 1, 1, 1))
    strided_layer = layer((20, 10, 9), 40, strides=(2, 2), padding=(1, 1, 1, 1), low=0)
    last_layer = layer((40, 5, 5), 40, padding=(1, 1, 1, 1))
    shortcut = layer((20, 10, 9), 40, 1, strides=(2, 2))
    sum_layer = Addition((40, 5, 5), 1, 0, 2, low=0)
    steps = [
        LayerStep(pool, (0,)),
        LayerStep(strided_layer, (1,)),
        LayerStep(shortcut, (1,)),
        LayerStep(last_layer, (2,)),
        LayerStep(sum_layer, (4, 3)),
    ]
    check_steps([(20, 19, 17)], steps, seed=seed)


@pytest.mark.parametrize(
    "convolution",
    [
        layer((16, 21, 31), 16, 7, padding=(3, 3, 3, 3)),
        layer((700, 1, 1), 10, 1),
        layer((64, 1, 1), 1, 1),
        layer((32, 3, 1), 16, 3, padding=(1, 1, 1, 1)),
        layer((16, 40, 40), 16, 12, strides=(4, 4)),
        layer((3, 33, 35), 16, 7, strides=(2, 2), padding=(3, 3, 3, 3)),
    ],
)
def test_where_hazards_or_sizes_are_special(convolution: Convolution) -> None:
    check(convolution)


@pytest.mark.parametrize("config", [PYNQ, ULTRA96])
@pytest.mark.parametrize(
    ("inputs", "outputs", "stride"), [((64, 56, 56), 64, 1), ((64, 56, 56), 128, 2), ((512, 7, 7), 512, 1)]
)
def test_most_of_the_time_multiplies(config: Config, inputs: tuple[int, int, int], outputs: int, stride: int) -> None:
    convolution = layer(inputs, outputs, padding=(1, 1, 1, 1), strides=(stride, stride), low=0)
    network = compile_chain(config, [convolution])
    cycles = simulate(network.program).cycles
    assert cycles is not None
    assert convolution.macs / 256 / cycles.total > 0.8


@settings(deadline=None)
@given(st.lists(st.integers(-240_000, 240_000), min_size=1, max_size=40))
def test_a_bias_as_products(bias: list[int]) -> None:
    config = Config()
    weights = bias_weights(config, np.array(bias, np.int32))
    assert weights is not None
    products = weights.astype(np.int64) @ bias_inputs(config).astype(np.int64)
    assert products.reshape(-1)[: len(bias)].tolist() == bias
    assert bias_weights(config, np.array([*bias, 300_000], np.int32)) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": (5, 8, 8)}, "weights are for 4 channels, and the input has 5"),
        ({"bias": np.zeros(3, np.int32)}, r"bias and shift have \(3,\) and \(6,\) values for 6 outputs"),
        ({"shift": np.full(6, 32, np.int8)}, "shifts are 32 to 32; VTA can do 0 to 31 here"),
        ({"shift": np.arange(11, 17).astype(np.int8)}, "shifts are 11 to 16; VTA can do 0 to 15 here"),
        ({"low": -129}, "clipped to -129 .. 127; that must be a range of int8"),
        ({"padding": (0, 3, 0, 0)}, r"padding \(0, 3, 0, 0\) must be at least 0, below the kernel's extents \(3, 3\)"),
        ({"inputs": (4, 2, 8)}, r"leaves \(6, 0, 6\) results"),
        ({"strides": (0, 1)}, r"strides are \(0, 1\); they must be at least 1"),
    ],
)
def test_impossible_layers_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BuildError, match=message):
        replace(layer((4, 8, 8), 6), **changes)


def test_impossible_chains_are_refused() -> None:
    convolution = layer((16, 8, 8), 16)
    with pytest.raises(BuildError, match=r"step 1 is for inputs of \(\(16, 8, 8\),\) and reads \(\(16, 6, 6\),\)"):
        compile_chain(PYNQ, [convolution, convolution])
    with pytest.raises(BuildError, match="computes 4 frames at a time"):
        compile_chain(BATCHED, [convolution])
    with pytest.raises(BuildError, match=r"a kernel of \(40, 40\) is too large for the scratchpads"):
        compile_chain(PYNQ, [layer((16, 50, 50), 16, 40)])
    with pytest.raises(BuildError, match=r"step 0 reads tensors \(1,\); before it there are 1"):
        compile_network(PYNQ, [convolution.inputs], [LayerStep(convolution, (1,))], [1])
    with pytest.raises(BuildError, match=r"an input has the shape \(16, 8, 7\); the network is for \(16, 8, 8\)"):
        compile_chain(PYNQ, [convolution]).on(tensor((16, 8, 7)))
