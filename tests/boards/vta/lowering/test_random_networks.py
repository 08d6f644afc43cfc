"""Networks of random operators: VTA computes what the CPU does, and what is read twice is changed for nobody."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from boards.vta import simulate
from boards.vta.isa.config import ULTRA96
from boards.vta.lowering import stage
from boards.vta.lowering.artifact import Artifact
from tests.support.random_seeds import seeds
from tests.support.relax_models import run
from tests.support.vta.random_networks import Draw


@pytest.mark.parametrize("seed", seeds(12, 120))
@pytest.mark.one_in(2)
def test_results_are_those_of_the_cpu(seed: int) -> None:
    draw = Draw(seed)
    module, frame = draw.module(), draw.frame()
    artifact = Artifact.of(stage.lower_module(module), ULTRA96)
    memory = artifact.program.memory.copy()
    artifact.inputs[0].write(ULTRA96, frame, memory)
    simulation = simulate(replace(artifact.program, memory=memory), seed=seed)
    assert simulation.violations == ()
    assert simulation.memory is not None
    np.testing.assert_array_equal(artifact.outputs[0].read(ULTRA96, simulation.memory), run(module, {"x": frame}))
