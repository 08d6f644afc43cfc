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
from boards.vta.isa.program import PAGE
from pipeline.cli import main
from pipeline.errors import DeviceLost
from tests.support.vta.pynq_stand_in import install


def test_all_pass_on_the_simulator(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vta", "selftest", "--simulated", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["passed"]
    assert [each["name"] for each in report["tests"]] == [
        "instructions", "memory", "much memory", "convolution", "network",
    ]  # fmt: skip
    assert all(each["passed"] for each in report["tests"])


class FlippingBuffer(SimulatedBuffer):
    """Memory whose second page comes back with a wrong bit."""

    def invalidate(self) -> None:
        super().invalidate()
        # The results of the test "memory" begin there; "instructions" has one page only.
        if self.array.size > PAGE:
            self.array[PAGE] ^= 4


class FlippingBoard(SimulatedBoard):
    """A board with such memory."""

    def allocate(self, nbytes: int) -> SimulatedBuffer:
        buffer = super().allocate(nbytes)
        return FlippingBuffer(buffer.address, buffer.array, buffer.device_side)


class Dead(SimulatedBoard):
    """A board whose fetch never ends."""

    def read(self, module: str, offset: int) -> int:
        del module, offset
        return 0


def test_a_wrong_bit_is_found(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FlippingBoard(ULTRA96))
    assert main(["vta", "selftest", "--board", "ultra96"]) == 1
    out = capsys.readouterr().out
    assert "FAILED  memory" in out
    assert "values are wrong, the first in channel" in out
    assert out.rstrip().endswith("FAILED")


def test_a_board_that_hangs_ends_the_test(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Dead(ULTRA96))
    assert main(["vta", "selftest", "--board", "ultra96", "--timeout", "0.01"]) == 1
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
    with Driver(ULTRA96, Dead(ULTRA96), 0.01) as driver, pytest.raises(DeviceLost):
        next(iter(selftest.run_selftests(driver)))


def test_expectations_are_not_the_simulators() -> None:
    """NumPy computes them."""
    test_case = next(each for each in cases(0) if each.name == "network")
    values = [np.zeros(shape, np.int8) for shape in test_case.inputs]
    assert selftest.expected_output(test_case.steps, values).shape == test_case.steps[-1].outputs
