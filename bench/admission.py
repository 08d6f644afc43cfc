"""Admission policies on a pipeline that gets more frames than it can take.

Four simulated stages, the third one the slowest, are offered frames at 2.5 times its pace.  `deadline` must deliver
nothing later than one stage time after its deadline, at a throughput within 5 % of that of `latest`.

age_ms_*      from a frame's timestamp to its delivery
late_ms_max   by how much the latest frame missed the deadline; below zero if none did
"""

from __future__ import annotations

import math
from time import monotonic, sleep, time
from typing import Any

import numpy as np
from efficiency import plan
from report import Row, median, parser, percentile, report

from pipeline.errors import FrameDropped
from pipeline.scheduler import Pipeline

# The skip edge from `a` to `d` keeps tensors of waiting frames alive, as in a real network with a shortcut.
GRAPH = {"a": (4, ["x"]), "b": (3, ["a"]), "c": (10, ["b"]), "d": (5, ["c", "a"])}
SLOWEST = 10e-3
# Nearly three times the 22 ms that the stages take one after the other: a frame that starts at once keeps it, one that
# waits for four others at the slowest stage does not.
DEADLINE = 0.06
POLICIES: dict[str, dict[str, Any]] = {
    "latest": {},
    "drop-oldest": {"waiting": 4},
    "deadline": {"deadline": DEADLINE},
}


def main() -> None:
    options = parser(__doc__).parse_args()
    rounds, seconds = (3, 2.0) if options.quick else (7, 4.0)
    # All policies in each round, so that a disturbance of some seconds meets all of them.
    samples = [{name: measure(name, seconds) for name in POLICIES} for _ in range(rounds)]
    rows = [row(name, [sample[name] for sample in samples]) for name in POLICIES]
    base = rows[0]["frames_per_s"]
    report("More frames than a pipeline can take", [{**each, "ratio": each["frames_per_s"] / base} for each in rows],
           __doc__ or "", options.json)  # fmt: skip


def measure(policy: str, seconds: float) -> dict[str, Any]:
    """Return the pace and the ages of the frames that came out."""
    ages: list[float] = []
    frame = np.zeros(4, np.float32)
    interval = SLOWEST / 2.5

    def note_age(future: Any) -> None:
        if not isinstance(future.exception(), FrameDropped):
            ages.append(time() - future.timestamp)

    with Pipeline(plan(GRAPH), admission=policy, **POLICIES[policy]) as running:
        # The first frames find threads that have not started yet.
        for _ in running.map([frame] * 20):
            pass
        begin = monotonic()
        delivered = running.statistics().delivered
        while (now_s := monotonic()) < begin + seconds:
            running.submit(frame).add_done_callback(note_age)
            sleep(max(0.0, interval - (monotonic() - now_s)))
        # Before the pipeline closes: it still delivers what is inside then, which would count for a longer time.
        statistics = running.statistics()
        pace = (statistics.delivered - delivered) / (monotonic() - begin)
    return {"pace": pace, "ages": ages, "dropped": sum(statistics.dropped.values())}


def row(policy: str, samples: list[dict[str, Any]]) -> Row:
    """Return one line of the table."""
    ages = [age for sample in samples for age in sample["ages"]]
    deadline = POLICIES[policy].get("deadline", math.nan)
    return {
        "admission": policy,
        "frames_per_s": median([sample["pace"] for sample in samples]),
        "ideal_frames_per_s": 1 / SLOWEST,
        "dropped": sum(sample["dropped"] for sample in samples),
        "age_ms_p50": percentile(ages, 0.5) * 1e3,
        "age_ms_p99": percentile(ages, 0.99) * 1e3,
        "deadline_ms": None if math.isnan(deadline) else deadline * 1e3,
        "late_ms_max": None if math.isnan(deadline) else (max(ages) - deadline) * 1e3,
        "stage_ms": SLOWEST * 1e3,
    }


if __name__ == "__main__":
    main()
