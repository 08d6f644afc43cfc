"""Machine state: clock and temperature of the processors."""

from __future__ import annotations

import math
from typing import Any

import psutil


def read_clock_mhz() -> float | None:
    """Return the mean clock of the processors in MHz; None if the system does not say."""
    try:
        clock = psutil.cpu_freq()
    except (OSError, NotImplementedError):
        return None
    # None in many containers, and 0 on some boards.
    return float(clock.current) if clock and clock.current > 0 else None


def read_temperature_c() -> float | None:
    """Return the temperature of the warmest sensor in degrees Celsius; None without sensors."""
    try:
        # Only on Linux and FreeBSD.
        sensors: dict[str, Any] = getattr(psutil, "sensors_temperatures", dict)()
    except (OSError, ValueError):
        return None
    values = [float(sensor.current) for group in sensors.values() for sensor in group if sensor.current is not None]
    # Sensors that are switched off say 0, or nonsense.
    return max((value for value in values if math.isfinite(value) and 0 < value < 200), default=None)
