"""Reordering: the pace of replicas that are not alike, whose results leave in the order of their frames.

A replica takes the next frame as soon as it is idle.  While a slow one has a frame, the others go on with those behind
it, but only as far as frames may be inside; then they wait for it.  With as many inside as `frames_at_work` says and
one that waits, none ever does, and the replicas' rates add up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush

import numpy as np

MOST_PER_REPLICA = 32
"""Frames inside for each replica at most: one so much slower than the others is not worth waiting for."""

# Until the pattern of waiting repeats itself, and for its mean.
_ROUNDS = 40


def frames_at_work(times: Sequence[float]) -> int:
    """Return how many frames replicas begin while the slowest one has a frame, its own included."""
    longest = max(times)
    # Each of the others ends at most so many in that time, and has begun one more; but for the slowest, which is one.
    counts = (math.ceil(longest / seconds - 1e-9) if seconds else 1 for seconds in times)
    return min(sum(counts), MOST_PER_REPLICA * len(times))


@lru_cache(maxsize=256)
def ordered_interval(times: tuple[float, ...], inside: int, rest_s: float = 0.0) -> float:
    """Return the mean seconds between two frames.

    Parameters
    ----------
    times : tuple of float
        Seconds of a frame in each replica.
    inside : int
        At most so many frames are inside, in order.
    rest_s : float
        Seconds that each frame spends in other stages.
    """
    frames = _ROUNDS * (min(inside, MOST_PER_REPLICA * len(times)) + len(times))
    # By when each is idle, and among those by their number: who has waited longest takes the next frame.
    idle = [(0.0, replica) for replica in range(len(times))]
    heapify(idle)
    ends: list[float] = []
    last = 0.0
    for frame in range(frames):
        entry = ends[frame - inside] if frame >= inside else 0.0
        idle_since, replica = heappop(idle)
        end = max(idle_since, entry + rest_s) + times[replica]
        heappush(idle, (end, replica))
        last = max(last, end)
        ends.append(last)
    # The slope of all but the first half: results leave in bursts, so that its two ends alone would mislead.
    later = np.arange(frames // 2, frames)
    return float(np.polyfit(later, ends[frames // 2 :], 1)[0])
