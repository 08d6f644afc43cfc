"""Networks of random operators: VTA computes what the CPU does, and what is read twice is changed for nobody."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from boards.vta import simulate
from boards.vta.config import ULTRA96
from boards.vta.lowering import stage
from boards.vta.lowering.artifact import Artifact
from tests.boards.vta.lowering.random_networks import Draw
from tests.executor.schedules.relax_models import run


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 120))])
def test_results_are_those_of_the_cpu(seed: int) -> None:
    draw = Draw(seed)
    module, frame = draw.module(), draw.frame()
    artifact = Artifact.of(stage.of_module(module), ULTRA96)
    memory = artifact.program.memory.copy()
    artifact.inputs[0].write(ULTRA96, frame, memory)
    done = simulate(replace(artifact.program, memory=memory), seed=seed)
    assert done.violations == ()
    assert done.memory is not None
    np.testing.assert_array_equal(artifact.outputs[0].read(ULTRA96, done.memory), run(module, {"x": frame}))
