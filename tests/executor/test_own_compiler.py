"""A kind of device with a compiler of its own is one file: nothing else asks what kind it is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tvm

from pipeline.core.board.board import Board, Device
from pipeline.core.board.device_kinds import DeviceKind
from pipeline.errors import BoardError
from pipeline.executor import devices, targets
from pipeline.executor.build import compile_stage, runs_here
from pipeline.executor.detection import why_absent
from pipeline.executor.devices.base import OwnCompiler
from pipeline.executor.devices.null import NullRuntime
from pipeline.executor.stage_code import StageCode
from pipeline.executor.stage_source import StageSource
from tests.support.device_kinds import added_kind

ABACUS = Device("wood", "abacus", target={"kind": "abacus", "beads": 10})


class Abacus(NullRuntime, OwnCompiler):
    """Counts."""

    @staticmethod
    def check(device: Device) -> None:
        if (device.target or {}).get("beads") != 10:
            raise BoardError("an abacus has 10 beads")

    @staticmethod
    def is_here(device: Device) -> bool:
        return device.name == "wood"

    @staticmethod
    def compile_stage(source: StageSource, device: Device) -> StageCode:
        module = source.module()
        return StageCode(lambda: module, {"beads": np.array(device.index)}, executable=module, calls=())


@pytest.fixture(autouse=True)
def kind() -> Iterator[None]:
    with added_kind(DeviceKind("abacus", f"{__name__}:Abacus")):
        yield


def test_it_compiles_its_stages() -> None:
    module = tvm.IRModule()
    assert compile_stage(module, ABACUS).executable is module
    assert devices.compiler(ABACUS) is Abacus
    assert devices.compiler(Device("cpu")) is None


def test_it_knows_whether_it_is_here_and_is_not_measured() -> None:
    assert runs_here(ABACUS)
    assert not runs_here(Device("metal", "abacus"))
    assert "estimated by their own compiler" in why_absent(ABACUS)


def test_it_checks_its_target() -> None:
    targets.check(Board("b", (ABACUS,)), "b.toml")
    with pytest.raises(BoardError, match=r"b\.toml: device 'wood': an abacus has 10 beads"):
        targets.check(Board("b", (Device("wood", "abacus", target={"kind": "abacus"}),)), "b.toml")
