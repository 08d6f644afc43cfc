"""The head that decoders are measured with."""

from __future__ import annotations

import decoders
import pytest


@pytest.mark.parametrize("objects", [0, 10, 100])
def test_each_object_is_one_box(objects: int) -> None:
    assert decoders.our_side()(decoders.make_head(objects)) == objects


def test_a_row_without_other_packages() -> None:
    (row,) = decoders.measure(decoders.our_side(), {}, 10, seconds=0)
    assert (row["boxes"], row["ratio"]) == (10, 1)
    assert row["ours_us_p50"] > 0
