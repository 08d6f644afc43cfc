"""VTA's part of ResNet-18, between the first max pool and the last average pool, as one stream."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from boards.vta import Config, simulate
from boards.vta.compiler.layers import Addition
from boards.vta.compiler.network import Layer, LayerStep, compile_network
from boards.vta.isa.config import PYNQ, ULTRA96
from tests.support.vta.checking import check_steps
from tests.support.vta.references import layer

INPUT = (64, 56, 56)
PAD = (1, 1, 1, 1)


@dataclass
class Steps:
    """The steps so far."""

    steps: list[LayerStep] = field(default_factory=list)

    def add(self, layer: Layer, *sources: int) -> int:
        self.steps.append(LayerStep(layer, sources))
        return len(self.steps)

    def block(self, source: int, inputs: tuple[int, int, int], outputs: int, stride: int) -> int:
        seed, result = len(self.steps), (outputs, inputs[1] // stride, inputs[2] // stride)
        shift = np.full(outputs, 13, np.int8)
        first = self.add(
            layer(inputs, outputs, 3, seed, padding=PAD, strides=(stride, stride), shift=shift, low=0), source
        )
        second = self.add(layer(result, outputs, 3, seed + 1, padding=PAD, shift=shift), first)
        shortcut = source
        if stride > 1:
            shortcut = self.add(layer(inputs, outputs, 1, seed + 2, strides=(stride, stride), shift=shift - 2), source)
        return self.add(Addition(result, shift=1, low=0), second, shortcut)


def steps() -> list[LayerStep]:
    step_list, source, inputs = Steps(), 0, INPUT
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for block_stride in (stride, 1):
            source = step_list.block(source, inputs, outputs, block_stride)
            inputs = (outputs, inputs[1] // block_stride, inputs[2] // block_stride)
    return step_list.steps


@pytest.mark.slow
@pytest.mark.parametrize("seed", [None, 0])
def test_results(seed: int | None) -> None:
    check_steps([INPUT], steps(), seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize(("config", "most_ms"), [(PYNQ, 85), (ULTRA96, 26)])
def test_estimated_time(config: Config, most_ms: float) -> None:
    """Not far above the 66 and 20 ms in which nothing but products would be computed."""
    network = compile_network(config, [INPUT], steps(), [len(steps())])
    assert network.macs == pytest.approx(1.70e9, rel=0.01)
    cycles = simulate(network.program).cycles
    assert cycles is not None
    assert cycles.seconds * 1e3 < most_ms
