"""Node monitor: what a node tells of itself once a second."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pipeline.io.source_frame import SECOND
from pipeline.ros.configuration import PROFILES, Configuration
from pipeline.ros.messages import cdr, diagnostics
from pipeline.ros.messages.types import create_message

if TYPE_CHECKING:
    from pipeline.ros.messages.diagnostics import Condition
    from pipeline.ros.transports.base import Transport


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


INTERVAL_S = 1.0
"""Seconds between two messages of diagnostics."""


class NodeMonitor:
    """Publishes diagnostics and statistics, and notes silence.

    The function `now` returns the time of the node's clock in nanoseconds, `statistics` are those of the messages.
    """

    def __init__(self, configuration: Configuration, transport: Transport, now: Callable[[], int]) -> None:
        self._configuration, self._transport, self._now = configuration, transport, now
        reliable = PROFILES["reliable"]
        self._send_diagnostics = transport.announce(configuration.diagnostics, diagnostics.DIAGNOSTICS, reliable)
        self._send_statistics = transport.announce(configuration.statistics, METRICS, reliable)
        self._previous_condition: Condition | None = None
        self.statistics, self._silence_s = TopicStatistics(now()), 0.0

    def diagnose(self, condition: Condition) -> None:
        """Publish a condition as diagnostics."""
        message = diagnostics.message(self._configuration.name, condition, self._previous_condition, self._now())
        self._send_diagnostics(cdr.encode(message, diagnostics.DIAGNOSTICS), 0)
        self._previous_condition = condition

    def publish_statistics(self) -> None:
        """Publish age and period of the messages since the last call."""
        for message in self.statistics.report(self._configuration.name, self._now()):
            self._send_statistics(cdr.encode(message, METRICS), 0)

    def find_silence(self, *, has_peers: bool) -> str:
        """Describe a topic without a publisher, once it lasts long enough; to be called once per `INTERVAL_S`."""
        topic, patience = self._configuration.subscribe, self._configuration.patience
        before, self._silence_s = self._silence_s, 0.0 if has_peers else self._silence_s + INTERVAL_S
        if not before < patience <= self._silence_s:
            return ""
        similar = self._transport.find_similar(topic.type)
        return f"no publisher of {topic.topic!r} ({topic.type}) for {patience:g} s{similar}"

    def close(self) -> None:
        """Publish nothing any more."""
        self._send_diagnostics.close()
        self._send_statistics.close()
