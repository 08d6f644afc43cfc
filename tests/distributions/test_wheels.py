"""The wheels, as ``make wheels`` builds them, installed without the network where nothing else is."""

from __future__ import annotations

import os
import platform
import runpy
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from tests.support import detectors

# Two hundred megabytes of packages are downloaded and unpacked.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TVM_LIBRARIES = ("pipeline/native/libtvm_runtime.so", "pipeline/native/libtvm_runtime_extra.so")


@pytest.fixture(scope="module")
def builder(root: Path) -> dict[str, Any]:
    return runpy.run_path(str(root / "distributions" / "wheels.py"))


@pytest.fixture(scope="module")
def wheels(builder: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the wheels of both distributions, and of what they need."""
    folder = tmp_path_factory.mktemp("wheels")
    built = [wheel for wheel in builder["build"](folder) if wheel.stem.endswith((platform.machine(), "any"))]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--dest", str(folder)]
    subprocess.run([*pip, *map(str, built)], check=True)
    return folder


@pytest.fixture(scope="module")
def bundle(digits_onnx: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("bundle") / "digits.bundle"
    graph = pipeline.read(digits_onnx)
    pipeline.build(graph, pipeline.plan(graph, stages=2)).save(folder)
    np.save(folder.with_name("frames.npy"), np.random.default_rng(1).random((2, 1, 1, 32, 32), np.float32))
    graph = pipeline.read(detectors.save_detector(folder.with_name("cells.onnx")))
    card = pipeline.ModelCard(labels=["square"], decoder="yolox")
    pipeline.build(graph, pipeline.plan(graph, stages=1), card=card).save(folder.with_name("cells.bundle"))
    scene = detectors.scene((1, 2))[::2, ::2].transpose(2, 0, 1)[None]
    np.save(folder.with_name("scene.npy"), scene.astype(np.float32))
    yield folder
    shutil.rmtree(folder)


def install(distribution: str, wheels: Path, folder: Path) -> Path:
    """Install a distribution into an environment of its own, and return the folder of its programs."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    options = ["--quiet", "--no-index", "--find-links", str(wheels)]
    subprocess.run([str(folder / "bin" / "python"), "-I", "-m", "pip", "install", *options, distribution], check=True)
    return folder / "bin"


def call(programs: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(programs / "soc-pipeline"), *arguments],
        cwd=folder,
        # Neither this source tree, nor what it has in its cache.
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize("distribution", ["soc-stages-runtime", "soc-stages"])
def test_each_is_installed_without_the_network_and_runs_a_bundle(
    distribution: str, wheels: Path, bundle: Path, tmp_path: Path, root: Path
) -> None:
    programs = install(distribution, wheels, tmp_path / "environment")
    frames = bundle.with_name("frames.npy")
    run = ("run", str(bundle), "--input", str(frames), "--output", "results.npz")
    process = call(programs, *run, folder=tmp_path)
    assert (process.returncode, process.stderr) == (0, "")
    with pipeline.load(bundle) as running, np.load(tmp_path / "results.npz") as results:
        expected = np.stack(list(running.map(np.load(frames))))
        np.testing.assert_array_equal(next(iter(results.values())), expected)
    # Boxes need nothing but NumPy; pictures would need Pillow.
    detector, scene = str(bundle.with_name("cells.bundle")), str(bundle.with_name("scene.npy"))
    process = call(programs, "run", detector, "--input", scene, folder=tmp_path)
    assert process.stdout.startswith("scene: square 1.00 [8 16 16 24]\n"), process.stderr
    code = f"import pipeline; print(len(list(pipeline.stream({detector!r}, {scene!r}))))"
    arguments = [str(programs / "python"), "-I", "-c", code]
    assert subprocess.run(arguments, capture_output=True, text=True, check=True, cwd=tmp_path).stdout == "1\n"
    process = call(programs, "plan", "model.onnx", folder=tmp_path)
    (line,) = process.stderr.splitlines()
    assert process.returncode == 2
    assert ("install soc-stages from" in line) is (distribution == "soc-stages-runtime")
    if distribution == "soc-stages-runtime":
        (packages,) = programs.parent.glob("lib/python3*/site-packages")
        subprocess.run(["sh", str(root / "distributions" / "trim.sh"), str(packages)], check=True)
        assert not list(packages.glob("numpy/**/tests"))
        (tmp_path / "results.npz").unlink()
        process = call(programs, *run, folder=tmp_path)
        assert (process.returncode, process.stderr) == (0, "")
        assert (tmp_path / "results.npz").exists()


def test_the_runtime_s_wheels_have_the_library_and_its_licence(wheels: Path) -> None:
    for processor, machine in (("x86_64", 0x3E), ("aarch64", 0xB7)):
        (wheel,) = wheels.glob(f"soc_stages_runtime-*{processor}.whl")
        with zipfile.ZipFile(wheel) as archive:
            for library in TVM_LIBRARIES:
                header = archive.read(library)[:20]
                # ELF's number of the processor, in its bytes 18 and 19.
                assert (header[:4], int.from_bytes(header[18:20], "little")) == (b"\x7fELF", machine)
            assert {"pipeline/native/LICENSE", "pipeline/native/NOTICE"} <= set(archive.namelist())
            assert archive.read("pipeline/native/version.txt").startswith(b"0.27.")
            assert not [name for name in archive.namelist() if "compiler.so" in name]


def test_the_runtime_is_a_part_of_the_other(wheels: Path) -> None:
    """But for TVM's library, which comes with TVM there."""
    names = []
    for pattern in ("soc_stages_runtime-*x86_64.whl", "soc_stages-*.whl"):
        (wheel,) = wheels.glob(pattern)
        with zipfile.ZipFile(wheel) as archive:
            names.append({name for name in archive.namelist() if ".dist-info/" not in name})
    assert {name for name in names[0] if not name.startswith("pipeline/native/")} < names[1]
