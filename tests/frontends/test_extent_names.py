"""Sums and products of names of extents, as exporters write them."""

from __future__ import annotations

import pytest

from pipeline.frontends.input_shapes import evaluate


@pytest.mark.parametrize(
    ("text", "extent"),
    [
        ("batch", 2),
        ("past_length + 1", 9),
        ("batch*heads", None),
        ("floor(past_length/2)", None),
        ("(past_length - 2) // batch", 3),
        ("past_length / 0", None),
        ("1 +", None),
        ("__import__('os')", None),
        ("batch" + "+1" * 10_000, None),
        ("?", None),
    ],
)
def test_evaluate(text: str, extent: int | None) -> None:
    assert evaluate(text, {"batch": 2, "past_length": 8}) == extent
