"""The runner on an emulated PYNQ-Z2, a board of 32 bits: its own way from a network to results, and to errors.

TVM's runtime is part of the library here, from the sources in its wheels: there are no wheels for 32 bits.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import models
import numpy as np
import onnxruntime
import pytest

import pipeline
from tests.runner.test_arm import assert_old_libraries_will_do, check, emulator
from tests.support.arm_board import make_system
from tests.support.bundles import rewrite
from tests.support.manifest_fuzzer import write_mutation
from tests.support.runner import build_runner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

NETWORKS = tuple(name for name in models.NAMES if name != "vgg19")
"""Without that whose parameters alone, 575 MB, are more than the board's memory."""

CROSS_ROOT = Path("/usr/arm-linux-gnueabihf")
"""Where Debian's packages for cross compilers have the C library."""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def command(root: Path) -> list[str]:
    """The program, on an emulated Cortex-A9."""
    qemu = emulator(root, "qemu-arm-static")
    built = build_runner("runner-armv7l", "--machine", "armv7l", "--", "-DRUNTIME_FROM_SOURCES=ON")
    assert sorted(path.name for path in built.iterdir()) == ["libsoc_pipeline.so", "soc-run"]
    system = CROSS_ROOT if (CROSS_ROOT / "lib/ld-linux-armhf.so.3").exists() else root / "build/armhf"
    if not system.exists():
        make_system(system, "armhf", ["libc6"])
    return [qemu, "-cpu", "cortex-a9", "-L", str(system), str(built / "soc-run")]


@pytest.fixture(scope="module")
def run(command: list[str]) -> Run:
    """Start the program, and wait for it."""

    def start(*arguments: object) -> subprocess.CompletedProcess[str]:
        line = [*command, *map(str, arguments)]
        return subprocess.run(line, capture_output=True, text=True, check=False, timeout=1700)

    return start


@pytest.fixture(scope="module")
def digits(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits network in two stages, for the board."""
    graph = pipeline.read(root / "pipeline/demo/digits.onnx")
    path = tmp_path_factory.mktemp("digits") / "digits.bundle"
    pipeline.build(graph, pipeline.plan(graph, "pynq-z2", devices=["cpu", "cpu"], stages=2)).save(path)
    return path


@pytest.fixture
def bundle(digits: Path, tmp_path: Path) -> Path:
    """A copy of it that may be changed."""
    return Path(shutil.copytree(digits, tmp_path / "copied.bundle"))


def test_a_kept_bundle(root: Path, command: list[str], tmp_path: Path) -> None:
    check(command, root / "tests/executor/bundles/format-1-armv7l", tmp_path, "cortex-a9")
    assert_old_libraries_will_do(*Path(command[-1]).parent.iterdir())


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(run: Run, tmp_path: Path, name: str) -> None:
    model = models.write(name, tmp_path)
    graph = pipeline.read(model)
    plan = pipeline.plan(graph, "pynq-z2", devices=["cpu"])
    pipeline.build(graph, plan, check=False, verify=False).save(tmp_path / "network.bundle")
    (spec,) = plan.inputs
    values = np.random.default_rng(5).standard_normal(spec.shape).astype(spec.dtype)
    np.save(tmp_path / "input.npy", values)
    files = ["--input", tmp_path / "input.npy", "--output", tmp_path / "output.npy"]
    result = run(tmp_path / "network.bundle", *files)
    assert (result.returncode, result.stderr) == (0, "")
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    expected = session.run(None, {session.get_inputs()[0].name: values})[0]
    np.testing.assert_allclose(np.load(tmp_path / "output.npy"), expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def shorten(content: Any) -> None:
    content["plan"]["stages"][1].pop("queue_depth")


def move(content: Any) -> None:
    content["stages"][0].update(machine="x86_64")


@pytest.mark.parametrize(
    ("change", "words"),
    [(shorten, "queue_depth is missing"), (move, "is built for 'x86_64', but this machine is armv7l")],
)
def test_a_manifest_that_cannot_be_is_one_line(run: Run, bundle: Path, change: Any, words: str) -> None:
    rewrite(bundle, change)
    assert_error(run(bundle), words)


def test_errors_are_one_line(run: Run, bundle: Path, tmp_path: Path) -> None:
    assert_error(run(tmp_path / "none.bundle"), "No such file")
    assert_error(run(bundle, "--loud"), "there is no option", status=2)
    assert_error(run(bundle, "--input", tmp_path / "none.npy"), "No such file")
    np.save(tmp_path / "wrong.npy", np.zeros(3, np.int8))
    assert_error(run(bundle, "--input", tmp_path / "wrong.npy"), "of another shape or dtype")
    (tmp_path / "wrong.npy").write_bytes(b"\x93NUMPY\x02\x00\x00\x00\x10\x00" + b"{" * (1 << 20))
    assert_error(run(bundle, "--input", tmp_path / "wrong.npy"), "has a header")
    (bundle / "stage1.parameters").write_bytes(b"x")
    assert_error(run(bundle), "stage1.parameters' has 1 bytes instead of")
    (bundle / "manifest.json").write_text("[" * 100_000)
    assert_error(run(bundle), "does not have the checksum")


def test_a_frame_that_fails_is_one_line(run: Run, bundle: Path) -> None:
    rewrite(bundle, lambda content: content["stages"].reverse())
    assert_error(run(bundle), "frame 0 failed in stage0: ")


def test_hostile_manifests(run: Run, digits: Path, bundle: Path) -> None:
    content = json.loads((digits / "manifest.json").read_bytes())
    for seed in range(60):
        write_mutation(bundle, seed, content)
        result = run(bundle)
        assert result.returncode in {0, 1}, (seed, result.stderr[-500:])
        assert len(result.stderr.splitlines()) == result.returncode, (seed, result.stderr[-500:])


def assert_error(result: subprocess.CompletedProcess[str], words: str, *, status: int = 1) -> None:
    assert result.returncode == status, result.stderr[-500:]
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr[-500:]
