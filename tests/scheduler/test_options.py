"""Options of a pipeline as values, and as the keyword arguments that stand for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pipeline import Bundle, Pipeline, Plan
from pipeline.errors import ArgumentError
from pipeline.scheduler.admission import Admission
from pipeline.scheduler.options import PipelineOptions, Supervision
from pipeline.scheduler.trace import Trace


def test_keywords_and_values_mean_the_same() -> None:
    trace = Trace()
    keywords = PipelineOptions.of(
        admission="deadline",
        waiting=2,
        deadline=0.5,
        on_error="stop",
        stage_timeout={"a": 1.0},
        on_timeout="fail-pipeline",
        trace=trace,
    )
    supervision = Supervision("stop", {"a": 1.0}, "fail-pipeline")
    values = PipelineOptions.of(admission=Admission("deadline", 2, 0.5), supervision=supervision, trace=trace)
    assert keywords == values


def test_what_is_left_out_has_its_default() -> None:
    options = PipelineOptions.of(stage_timeout=None)
    assert (options.admission, options.supervision, options.trace) == (Admission(), Supervision(), None)
    assert options.admission.deadline == math.inf


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"admission": Admission("latest"), "waiting": 2}, "admission has waiting in it already; give one of the two"),
        (
            {"supervision": Supervision(), "stage_timeout": 1.0, "on_error": "stop"},
            "supervision has on_error and stage_timeout in it already",
        ),
    ],
)
def test_a_value_and_its_parts_are_refused_together(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        PipelineOptions.of(**keywords)


def test_an_unknown_keyword_is_named_with_the_nearest(chain: Callable[..., Plan]) -> None:
    keywords: dict[str, Any] = {"admision": "latest"}
    with pytest.raises(TypeError, match=r"Pipeline\(\) has no argument 'admision'; did you mean 'admission'"):
        Pipeline(chain(1), **keywords)


def test_a_bundle_brings_its_plan_and_its_code(chain: Callable[..., Plan], functions: Any) -> None:
    bundle = Bundle(chain(1), [lambda x: [x + 1]], checksum="abc")
    with Pipeline(bundle, create=functions) as running:
        assert running.checksum == "abc"
        (spec,) = running.plan.inputs
        values = np.zeros(spec.shape, spec.dtype)
        np.testing.assert_array_equal(running.submit(values).result(), values + 1)
