"""The nine networks in two stages: the runner's outputs are those of the Python runtime, bit for bit."""

from __future__ import annotations

from pathlib import Path

import models
import numpy as np
import pytest

import pipeline
from tests.support.runner import OK, Library


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", models.NAMES)
def test_outputs_are_equal(name: str, library: Library, tmp_path: Path) -> None:
    graph = pipeline.read(models.write(name, tmp_path))
    bundle = tmp_path / "network.bundle"
    pipeline.build(graph, pipeline.plan(graph, stages=2), check=False, verify=False).save(bundle)
    rng = np.random.default_rng(5)
    with pipeline.load(bundle) as running, library.open(bundle) as runner:
        specs = running.plan.inputs
        frames = [{spec.name: rng.standard_normal(spec.shape).astype(spec.dtype) for spec in specs} for _ in range(3)]
        results = runner.stream(frames)
        for frame, result in zip(frames, results, strict=True):
            assert result.status == OK, f"{result.stage}: {result.reason}"
            expected = running.submit(frame).result()
            values = expected if isinstance(expected, dict) else {running.plan.outputs[0].name: expected}
            for output, value in values.items():
                np.testing.assert_array_equal(result.arrays[output], value)
