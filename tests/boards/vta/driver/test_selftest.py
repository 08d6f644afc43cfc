"""The command that a board's owner runs: a clear verdict, either way."""

from __future__ import annotations

import json

import numpy as np
import pytest

from boards.vta.config import ULTRA96
from boards.vta.driver import selftest
from boards.vta.driver.driver import Driver
from boards.vta.driver.selftest import cases
from boards.vta.driver.simulated import SimulatedBoard, SimulatedBuffer
from pipeline.cli import main
from pipeline.errors import DeviceLost


def test_all_pass_on_the_simulator(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vta", "selftest", "--simulated", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["passed"]
    assert [each["name"] for each in found["tests"]] == [
        "instructions", "memory", "much memory", "convolution", "network",
    ]  # fmt: skip
    assert all(each["passed"] for each in found["tests"])


def test_a_wrong_bit_is_found(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    honest = SimulatedBuffer.invalidate

    def broken(buffer: SimulatedBuffer) -> None:
        honest(buffer)
        buffer.array[4096] ^= 4

    monkeypatch.setattr(SimulatedBuffer, "invalidate", broken)
    monkeypatch.setattr(selftest, "cases", lambda seed: [list(cases(seed))[1]])
    assert main(["vta", "selftest", "--simulated"]) == 1
    out = capsys.readouterr().out
    assert "FAILED  memory" in out
    assert "values are wrong, the first in channel" in out
    assert out.rstrip().endswith("FAILED")


def test_a_board_that_hangs_ends_the_test(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedBoard, "read", lambda *_: 0)
    assert main(["vta", "selftest", "--simulated", "--timeout", "0.01"]) == 1
    assert "module fetch hangs" in capsys.readouterr().out


def test_programs_get_other_numbers_each_time() -> None:
    """Memory that keeps the results of the run before would be found."""

    class Stuck(SimulatedBoard):
        def _run(self) -> bool:
            if self._checked:
                return True
            return super()._run()

    with Driver(ULTRA96, Stuck(ULTRA96)) as driver, pytest.raises(AssertionError):
        for _, outcome in zip(range(2), selftest.outcomes(driver), strict=False):
            assert outcome.passed


def test_what_is_lost_is_raised() -> None:
    class Dead(SimulatedBoard):
        def read(self, module: str, offset: int) -> int:
            del module, offset
            return 0

    with Driver(ULTRA96, Dead(ULTRA96), 0.01) as driver, pytest.raises(DeviceLost):
        next(iter(selftest.outcomes(driver)))


def test_expectations_are_not_the_simulators() -> None:
    """What is compared with comes from NumPy."""
    made = next(each for each in cases(0) if each.name == "network")
    values = [np.zeros(shape, np.int8) for shape in made.inputs]
    assert selftest.expected(made.steps, values).shape == made.steps[-1].outputs
