from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from pipeline.system.machine_state import read_clock_mhz, read_temperature_c


def fail(*_: Any) -> Any:
    raise FileNotFoundError("/sys/devices/system/cpu")


@pytest.mark.parametrize(
    ("answer", "mhz"),
    [(SimpleNamespace(current=1800.0), 1800.0), (SimpleNamespace(current=0.0), None), (None, None), (fail, None)],
)
def test_the_clock_is_there_or_not(monkeypatch: pytest.MonkeyPatch, answer: Any, mhz: float | None) -> None:
    monkeypatch.setattr(psutil, "cpu_freq", answer if answer is fail else lambda: answer)
    assert read_clock_mhz() == mhz


@pytest.mark.parametrize(
    ("currents", "celsius"), [([41.5, 63.0, 0.0], 63.0), ([0.0, None, 1e6], None), ([], None), (fail, None)]
)
def test_the_warmest_sensor_counts(monkeypatch: pytest.MonkeyPatch, currents: Any, celsius: float | None) -> None:
    groups = {} if currents is fail else {"cpu": [SimpleNamespace(current=value) for value in currents]}
    reader = currents if currents is fail else lambda: groups
    monkeypatch.setattr(psutil, "sensors_temperatures", reader, raising=False)
    assert read_temperature_c() == celsius


def test_this_machine_says_something_or_nothing() -> None:
    assert (read_clock_mhz() or 1) > 0
    assert (read_temperature_c() or 1) > 0
