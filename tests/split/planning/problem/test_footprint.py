"""Bytes of stages of a small graph, counted by hand."""

import numpy as np
import pytest

from pipeline.split.planning.problem.footprint import Footprint, TensorUse

# By tensor: x from the caller, a, b and c between four groups, and y for the caller.
USE = TensorUse(
    makers=np.array([-1, 0, 1, 2, 3]),
    last_readers=np.array([2, 1, 3, 3, 4]),
    nbytes=np.array([8.0, 4.0, 16.0, 2.0, 1.0]),
    reads=np.array([(0, 0), (0, 2), (1, 1), (2, 2), (2, 3), (3, 3)]),
)
FOOTPRINT = Footprint(np.array([10.0, 20.0, 30.0, 40.0]), np.zeros(4), np.zeros(5), USE)


@pytest.mark.parametrize(
    ("begin", "end", "parameters", "peak", "entry"),
    [
        # Group 0 has x and a; group 1 x, a and b, the most; group 2 x, b and c; group 3 b, c and y.
        (0, 4, 100, 8 + 4 + 16, 8),
        (0, 1, 10, 8 + 4, 8),
        # x passes the stage by after group 0; b is there until it is done, since others read it.
        (0, 2, 30, 4 + 16, 8),
        (1, 2, 20, 4 + 16, 4),
        (1, 3, 50, 4 + 8 + 16, 4 + 8),
        (2, 3, 30, 8 + 16 + 2, 8 + 16),
        # x is gone before y comes.
        (2, 4, 70, 8 + 16 + 2, 8 + 16),
        (3, 4, 40, 16 + 2 + 1, 16 + 2),
    ],
)
def test_a_stage_holds_what_is_alive_at_once(begin: int, end: int, parameters: int, peak: int, entry: int) -> None:
    assert FOOTPRINT.stage_bytes(begin, end) == parameters + peak
    assert FOOTPRINT.stage_bytes(begin, end, replicas=3) == 3 * (parameters + peak)
    assert FOOTPRINT.entry_bytes(begin, end) == entry
