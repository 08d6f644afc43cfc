"""The faults of Apache TVM's pipeline executor that are about bundles; the others are in `tests/scheduler`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.errors import BundleError
from pipeline.executor import devices as kinds
from pipeline.executor.bundle import Bundle
from pipeline.executor.devices.base import DeviceRuntime
from tests.support.onnx_models import node, save, weights

X, Y, Z = (TensorSpec(name, (4,)) for name in "xyz")


def test_fault_14_the_exact_device_is_restored(tmp_path: Path) -> None:
    """After loading, the device index was always 0."""
    devices = tuple(Device(f"unit{index}", "null", index=index, memory=f"m{index}") for index in (5, 2))
    stages = (
        StagePlan("a", "unit5", (X,), (Y,), cores=(0, 1), replicas=2, replica_devices=("unit5", "unit2")),
        StagePlan("b", "unit2", (Y,), (Z,)),
    )
    plan = Plan("test", "", Board("two", devices), (X,), (Z,), stages)
    Bundle(plan, [None, None]).save(tmp_path / "saved")
    reloaded = Bundle.load(tmp_path / "saved")
    assert reloaded.plan == plan
    opened_devices: list[tuple[str, int]] = []

    def create(device: Device) -> DeviceRuntime:
        opened_devices.append((device.name, device.index))
        return kinds.create(device)

    with pipeline.load(reloaded, create=create):
        pass
    assert opened_devices == [("unit5", 5), ("unit2", 2), ("unit2", 2)]


@pytest.fixture(scope="module")
def bundle_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of two compiled stages."""
    folder = tmp_path_factory.mktemp("built")
    path = save(
        folder / "model.onnx",
        [node("MatMul", "x w", "a", "first"), node("Relu", "a", "b", "second"), node("MatMul", "b w", "y", "third")],
        {"x": (4, 8)},
        ["y"],
        {"w": weights(8, 8)},
    )
    graph = pipeline.read(path)
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=2))
    bundle.save(folder / "model.bundle")
    return folder / "model.bundle"


def reference_outputs(x: np.ndarray) -> np.ndarray:
    w = weights(8, 8)
    return np.maximum(x @ w, 0) @ w  # type: ignore[no-any-return]


def test_fault_21_a_bundle_can_be_moved(bundle_path: Path, tmp_path: Path) -> None:
    """Exported bundles held absolute paths."""
    new_path = tmp_path / "elsewhere" / "other name.bundle"
    shutil.copytree(bundle_path, new_path)
    for file in new_path.iterdir():
        assert str(bundle_path.parent).encode() not in file.read_bytes(), f"{file.name} knows where it was made"
    x = weights(4, 8, seed=1)
    with pipeline.load(new_path) as running:
        np.testing.assert_allclose(running.submit(x).result(60), reference_outputs(x), rtol=1e-4, atol=1e-4)


def test_fault_22_a_bundle_runs_without_the_compiler_and_the_frontends(bundle_path: Path) -> None:
    """The runtime needed the compiler's headers."""
    script = f"""
import os, sys
os.environ["TVM_USE_RUNTIME_LIB"] = "1"  # the library without the compiler
os.environ["PATH"] = ""  # no compiler, no linker
for name in ("pipeline.split", "pipeline.executor.build", "pipeline.executor.linker", "onnx", "torch"):
    sys.modules[name] = None
import numpy as np, pipeline
with pipeline.load({str(bundle_path)!r}) as running:
    result = running.submit(np.ones((4, 8), np.float32)).result(60)
np.save(sys.argv[1], result)
"""
    out = bundle_path.parent / "result.npy"
    process = subprocess.run(
        [sys.executable, "-c", script, str(out)], capture_output=True, text=True, check=False, timeout=120
    )
    assert process.returncode == 0, process.stderr
    np.testing.assert_allclose(np.load(out), reference_outputs(np.ones((4, 8), np.float32)), rtol=1e-4, atol=1e-4)


def test_a_function_is_not_saved(tmp_path: Path) -> None:
    plan = Plan("test", "", Board("one", (Device("d", "null"),)), (X,), (Y,), (StagePlan("a", "d", (X,), (Y,)),))
    bundle = Bundle(plan, [None]).with_stage(lambda y: y + 1, inputs=["y"], outputs=["y"], name="add")
    with pipeline.load(bundle) as running:
        assert running.submit(np.zeros(4, np.float32)).result(60)[0] == 1
    with pytest.raises(BundleError, match="stage 'add' is a Python function, which a bundle does not hold"):
        bundle.save(tmp_path / "saved")
    assert not list(tmp_path.iterdir())
