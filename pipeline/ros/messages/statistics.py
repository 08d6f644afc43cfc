"""Topic statistics: age and period of messages, as ROS 2's nodes publish them."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from pipeline.io.source_frame import SECOND
from pipeline.ros.messages.types import create_message

METRICS = "statistics_msgs/msg/MetricsMessage"
MILLI = 1e6
"""Nanoseconds."""


class TopicStatistics:
    """Ages and periods of a subscription's messages since the last report."""

    def __init__(self, start: int) -> None:
        self._lock, self._start = threading.Lock(), start
        self._ages: list[float] = []
        self._times: list[int] = []

    def add(self, stamp: int, now: int) -> None:
        """Note a message: its stamp, 0 without, and the time, in nanoseconds."""
        with self._lock:
            self._times.append(now)
            if stamp:
                self._ages.append((now - stamp) / MILLI)

    def report(self, name: str, now: int) -> list[Any]:
        """Return the messages of a window that ends now, and begin the next one."""
        with self._lock:
            ages, times, start = self._ages, self._times, self._start
            # The last one's time is where the next period begins.
            self._ages, self._times, self._start = [], times[-1:], now
        periods = [(later - earlier) / MILLI for earlier, later in pairwise(times)]
        window = [create_message("builtin_interfaces/msg/Time", *divmod(time, SECOND)) for time in (start, now)]
        return [
            create_message(METRICS, name, source, "ms", *window, _points(values))
            for source, values in (("message_age", ages), ("message_period", periods))
        ]


def _points(values: Sequence[float]) -> list[Any]:
    none = float("nan")
    # Mean, least, most, standard deviation and count: types 1 to 5 of statistics_msgs/StatisticDataType.
    facts = (statistics.fmean(values), min(values), max(values), statistics.pstdev(values)) if values else (none,) * 4
    return [
        create_message("statistics_msgs/msg/StatisticDataPoint", number, fact)
        for number, fact in enumerate((*facts, float(len(values))), start=1)
    ]
