"""The container of the runtime, built and run where its tools are; its base is made of Debian's packages."""

from __future__ import annotations

import contextlib
import os
import platform
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline

TOOLS = ("buildah", "mmdebstrap")
BASE = "localhost/soc-pipeline-test-base"
PACKAGES = "python3,python3-pip,ca-certificates"
# Debian's, whose Python is that of the wheels that are downloaded here.
SUITE, PYTHON = "bookworm", (3, 11)

# Some hundred megabytes are downloaded and unpacked, and packages are configured one by one.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason=f"needs {' and '.join(TOOLS)}"),
    pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root, as containers without users do"),
    pytest.mark.skipif(sys.version_info[:2] != PYTHON, reason="wheels are those for this Python"),
]


def buildah(*arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    process = subprocess.run(
        ["buildah", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=900
    )
    assert not check or process.returncode == 0, process.stderr[-4000:]
    return process


@pytest.fixture(scope="module")
def builder(root: Path) -> dict[str, Any]:
    return runpy.run_path(str(root / "distributions" / "wheels.py"))


@pytest.fixture(scope="module")
def context(builder: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the wheels of the runtime and of all that it needs, for both kinds of processor."""
    folder = tmp_path_factory.mktemp("context")
    built = builder["build"](folder / "wheels")
    for processor in builder["PROCESSORS"]:
        (wheel,) = (path for path in built if path.stem.endswith(processor))
        builder["download"](folder / "wheels", processor, [str(wheel)], dependencies=True)
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A small Debian with Python."""
    archive = tmp_path_factory.mktemp("base") / "base.tar"
    line = ["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(archive)]
    subprocess.run(line, check=True, capture_output=True, timeout=900)
    yield _import(archive, BASE)
    buildah("rmi", BASE, check=False)


@pytest.fixture(scope="module")
def bundle(digits_onnx: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle") / "digits.bundle"
    graph = pipeline.read(digits_onnx)
    pipeline.build(graph, pipeline.plan(graph, stages=2)).save(folder)
    np.save(folder.with_name("frames.npy"), np.random.default_rng(1).random((2, 1, 1, 32, 32), np.float32))
    return folder


def test_it_runs_a_bundle_as_nobody_in_particular(root: Path, context: Path, base: str, bundle: Path) -> None:
    image = _build(root, context, {"BASE": base, "BUILDER": base}, "localhost/soc-pipeline-test")
    data = bundle.parent
    # Written by the user of the container.
    data.chmod(0o777)
    with _container(image) as name:
        line = ["python3", "-m", "soc_stages", "run", "/data/digits.bundle", "--input", "/data/frames.npy"]
        _run(name, *line, "--output", "/data/results.npz", data=data)
        assert _run(name, "id", "-u").strip() == "10001"
    with pipeline.load(bundle) as running, np.load(data / "results.npz") as results:
        expected = np.stack(list(running.map(np.load(data / "frames.npy"))))
        np.testing.assert_array_equal(next(iter(results.values())), expected)
    buildah("rmi", image)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="an emulator for 64-bit Arm on x86-64")
def test_that_for_arm_is_built_here_and_runs_there(root: Path, context: Path, base: str, tmp_path: Path) -> None:
    board = root / ".venv" / "arm-board"
    if not (board / "root").is_dir():
        pytest.skip("needs 'make arm-board'")
    # The board's own system, with the emulator that runs it.
    system = tmp_path / "system"
    shutil.copytree(board / "root", system, symlinks=True)
    emulator = "/usr/bin/qemu-aarch64-static"
    shutil.copy(f"{board}/emulator{emulator}", f"{system}{emulator}")
    (system / "tmp").mkdir(exist_ok=True)
    subprocess.run(["tar", "-C", str(system), "-cf", str(tmp_path / "system.tar"), "."], check=True)
    arm = _import(tmp_path / "system.tar", f"{BASE}-arm")
    arguments = {"BASE": arm, "BUILDER": base, "TARGETARCH": "arm64"}
    image = _build(root, context, arguments, "localhost/soc-pipeline-test-arm")
    with _container(image) as name:
        python = [emulator, "/usr/bin/python3.11"]
        assert _run(name, *python, "-c", "import platform; print(platform.machine())").strip() == "aarch64"
        assert _run(name, *python, "-m", "soc_stages", "--version").startswith("soc-pipeline ")
        # It loads TVM's runtime library, and NumPy.
        assert "cpu" in _run(name, *python, "-m", "soc_stages", "devices")
    buildah("rmi", image, arm)


def _import(archive: Path, name: str) -> str:
    """Make an image of a file system."""
    container = buildah("from", "scratch").stdout.strip()
    buildah("add", "--quiet", container, archive, "/")
    buildah("commit", "--quiet", "--rm", container, name)
    return name


def _build(root: Path, context: Path, arguments: dict[str, str], name: str) -> str:
    values = {"BUILDPLATFORM": "linux/amd64", "PIP_OPTIONS": "--no-index", **arguments}
    options = [text for key, value in values.items() for text in ("--build-arg", f"{key}={value}")]
    file = root / "distributions" / "Containerfile"
    buildah("build", "--isolation", "chroot", "--pull-never", "--file", file, *options, "--tag", name, context)
    return name


@contextlib.contextmanager
def _container(image: str) -> Iterator[str]:
    """Give a container of an image."""
    name = buildah("from", "--pull-never", image).stdout.strip()
    try:
        yield name
    finally:
        buildah("rm", name)


def _run(name: str, *line: str, data: Path | None = None) -> str:
    volumes = ["--volume", f"{data}:/data"] if data else []
    return buildah("run", "--isolation", "chroot", *volumes, name, "--", *line).stdout
