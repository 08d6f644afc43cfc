"""History: rate, latency, clock and temperature of the last minutes."""

from __future__ import annotations

from collections import deque
from time import perf_counter

from pipeline.system.machine_state import read_clock_mhz, read_temperature_c

POINTS = 300
"""Points of a curve: two minutes of a page's updates, and about as many as a phone has pixels."""

NAMES = ("frames_per_s", "latency_ms", "clock_mhz", "temperature_c")


class History:
    """Values of each update, the newest last."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, tuple[float | None, ...]]] = deque(maxlen=POINTS)

    def add(self, frames_per_s: float, latency_ms: float) -> None:
        """Add the values of now, and those of the machine."""
        self._points.append((perf_counter(), (frames_per_s, latency_ms, read_clock_mhz(), read_temperature_c())))

    def curves(self) -> dict[str, object]:
        """Return plain values: ``seconds`` of each point, at most 0, and ``curves`` by name; None where unknown."""
        newest = self._points[-1][0] if self._points else 0.0
        curves = {
            name: [None if values[number] is None else round(values[number] or 0.0, 3) for _, values in self._points]
            for number, name in enumerate(NAMES)
        }
        return {"seconds": [round(time - newest, 2) for time, _ in self._points], "curves": curves}
