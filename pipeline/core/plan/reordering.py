"""Reordering: pace of unequal replicas with results in frame order.

A replica takes the next frame as soon as it is idle.  While a slow one has a frame, the others go on with those behind
it, but only as far as frames may be inside; then they wait for it.  With as many inside as `frames_at_work` says and
one that waits, none ever does, and the replicas' rates add up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

MOST_PER_REPLICA = 32
"""Frames inside for each replica at most: one so much slower than the others is not worth waiting for."""


def frames_at_work(times: Sequence[float]) -> int:
    """Return the frames begun during the slowest replica's frame, inclusive."""
    longest = max(times)
    # Each of the others ends at most so many in that time, and has begun one more; but for the slowest, which is one.
    counts = (math.ceil(longest / seconds - 1e-9) if seconds else 1 for seconds in times)
    return min(sum(counts), MOST_PER_REPLICA * len(times))
