"""Source archives of both distributions: wheels that are built from them alone are complete."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("setuptools")

TREE = ("LICENSE", "README.md", "boards", "distributions", "pipeline", "pyproject.toml")
BUILD = "import sys, setuptools.build_meta as backend; print(getattr(backend, sys.argv[1])(sys.argv[2]))"


def build(kind: str, project: Path, folder: Path) -> Path:
    """Call a function of the build backend, as pip and build do, and return what it has made."""
    command = [sys.executable, "-c", BUILD, kind, str(folder)]
    process = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, timeout=100)
    assert process.returncode == 0, process.stderr[-2000:]
    return folder / process.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def tree(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source tree, since what is built leaves files there."""
    folder = tmp_path_factory.mktemp("tree")
    for name in (*TREE, "soc_stages.py"):
        if (root / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
            shutil.copytree(root / name, folder / name, ignore=ignored, symlinks=True)
        else:
            shutil.copy(root / name, folder)
    return folder


def extract(project: Path, folder: Path) -> Path:
    """Build a project's source archive, and return the folder that is in it."""
    with tarfile.open(build("build_sdist", project, folder)) as archive:
        # A file outside, or a link to one, is refused.
        archive.extractall(folder, filter="data")
    return next(path for path in folder.iterdir() if path.is_dir())


def requirements(project: Path, folder: Path) -> list[str]:
    """Return what pip is told that a project needs."""
    text = (build("prepare_metadata_for_build_wheel", project, folder) / "METADATA").read_text(encoding="utf-8")
    return [line.partition(": ")[2] for line in text.splitlines() if line.startswith("Requires-Dist:")]


@pytest.mark.parametrize(("path", "is_complete"), [(".", True), ("distributions/runtime", False)])
def test_an_archive_has_all_of_its_part(path: str, is_complete: bool, tree: Path, tmp_path: Path) -> None:
    """That of the runtime lacked all of its modules, and both what builds them."""
    is_runtime = runpy.run_path(str(tree / "distributions" / "parts.py"))["is_runtime"]
    folder = extract(tree / path, tmp_path)
    parts = ("pipeline/**/*.py", "boards/**/*.py")
    modules, archived = (
        {file.relative_to(place).as_posix() for part in parts for file in place.glob(part)} for place in (tree, folder)
    )
    assert archived == {name for name in modules if is_complete or is_runtime(name)}
    data = [
        "soc_stages.py",
        "boards/pynq-z2.toml",
        "boards/needs/rknn.toml",
        "boards/published/rknn-rk3588.toml",
        "pipeline/py.typed",
    ]
    assert all((folder / name).exists() for name in data)
    assert (folder / "pipeline/executor/core_estimates.json").exists() is is_complete
    (tmp_path / "metadata").mkdir()
    assert any(need.startswith("numpy") for need in requirements(folder, tmp_path / "metadata"))
