"""Node monitor: what a node tells of itself once a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pipeline.ros.configuration import PROFILES, Configuration
from pipeline.ros.messages import cdr, diagnostics
from pipeline.ros.messages.statistics import METRICS, TopicStatistics

if TYPE_CHECKING:
    from pipeline.ros.messages.diagnostics import Condition
    from pipeline.ros.transports.base import Transport

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
