"""The command that a board's owner runs: a clear verdict, either way."""

from __future__ import annotations

import json

import numpy as np
import pytest

from boards.vta.driver import selftest
from boards.vta.driver.driver import Driver
from boards.vta.driver.selftest import cases
from boards.vta.driver.simulated import SimulatedBoard, SimulatedBuffer
from boards.vta.isa.config import ULTRA96
from pipeline.cli import main
from pipeline.errors import DeviceLost


def test_all_pass_on_the_simulator(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vta", "selftest", "--simulated", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["passed"]
    assert [each["name"] for each in report["tests"]] == [
        "instructions", "memory", "much memory", "convolution", "network",
    ]  # fmt: skip
    assert all(each["passed"] for each in report["tests"])


def test_a_wrong_bit_is_found(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    honest = SimulatedBuffer.invalidate

    def flip_bit(buffer: SimulatedBuffer) -> None:
        honest(buffer)
        buffer.array[4096] ^= 4

    monkeypatch.setattr(SimulatedBuffer, "invalidate", flip_bit)
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
        runs = 0

        def run_program(self) -> bool:
            self.runs += 1
            return super().run_program() if self.runs == 1 else True

    with Driver(ULTRA96, Stuck(ULTRA96)) as driver, pytest.raises(AssertionError):
        for _, outcome in zip(range(2), selftest.run_selftests(driver), strict=False):
            assert outcome.passed


def test_what_is_lost_is_raised() -> None:
    class Dead(SimulatedBoard):
        def read(self, module: str, offset: int) -> int:
            del module, offset
            return 0

    with Driver(ULTRA96, Dead(ULTRA96), 0.01) as driver, pytest.raises(DeviceLost):
        next(iter(selftest.run_selftests(driver)))


def test_expectations_are_not_the_simulators() -> None:
    """NumPy computes them."""
    test_case = next(each for each in cases(0) if each.name == "network")
    values = [np.zeros(shape, np.int8) for shape in test_case.inputs]
    assert selftest.expected_output(test_case.steps, values).shape == test_case.steps[-1].outputs
