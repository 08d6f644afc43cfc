"""Parameters and bundles that change while compiled stages run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import pipeline
from pipeline.errors import InputError

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle

IMAGE = np.linspace(0, 1, 4 * 8 * 8, dtype=np.float32).reshape(1, 4, 8, 8)


def parameters(bundle: Bundle) -> dict[str, np.ndarray]:
    """Return those of the second stage."""
    answer: dict[str, np.ndarray] = bundle.codes[1].parameters
    return answer


@pytest.fixture(scope="module")
def bundles(small_onnx: Path) -> list[Bundle]:
    """Return a network in two stages, cut at two different places."""
    graph = pipeline.read(small_onnx)
    plans = [pipeline.plan(graph, cuts=[cut]) for cut in ("t2", "t3")]
    return [pipeline.build(graph, plan, check=False) for plan in plans]


def test_new_parameters_count_for_the_frames_behind_them(bundles: list[Bundle]) -> None:
    with pipeline.load(bundles[0]) as running:
        name, weights = max(parameters(bundles[0]).items(), key=lambda pair: pair[1].size)
        futures = [[running.submit(IMAGE) for _ in range(5)]]
        running.set_params("stage1", {name: weights + 1})
        futures.append([running.submit(IMAGE) for _ in range(5)])
        old_results, new_results = ([future.result(timeout=60) for future in half] for half in futures)
    assert all(np.array_equal(each, old_results[0]) for each in old_results)
    assert all(np.array_equal(each, new_results[0]) for each in new_results)
    assert not np.allclose(old_results[0], new_results[0])


def test_parameters_that_do_not_fit_change_nothing(bundles: list[Bundle]) -> None:
    name, bias = next(iter(parameters(bundles[0]).items()))
    with pipeline.load(bundles[0]) as running:
        expected = running.submit(IMAGE).result(timeout=60)
        with pytest.raises(InputError, match="float64"):
            running.set_params("stage1", {name: bias.astype(np.float64)})
        with pytest.raises(InputError, match="no parameter"):
            running.set_params("stage1", {"nothing": bias})
        assert np.array_equal(running.submit(IMAGE).result(timeout=60), expected)


def test_a_swap_keeps_the_stream_in_order(bundles: list[Bundle]) -> None:
    with pipeline.load(bundles[0]) as running:
        expected = running.submit(IMAGE).result(timeout=60)
        futures = []
        for bundle in (bundles[1], bundles[0], bundles[1]):
            futures += [running.submit(IMAGE) for _ in range(4)]
            running.swap(bundle)
        results = [future.result(timeout=60) for future in futures]
        assert running.plan == bundles[1].plan
    assert [future.sequence for future in futures] == list(range(1, 13))
    for result in results:
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
