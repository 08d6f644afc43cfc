"""Another project's package under one of this one's common names is refused, and both are named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def run_python(code: str, folder: Path, root: Path) -> subprocess.CompletedProcess[str]:
    """Run code where a folder of a user's own comes before this project."""
    path = os.pathsep.join((str(folder), str(root)))
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def shadow(folder: Path, name: str) -> Path:
    """Write a module of a user's own."""
    path = folder / f"{name}.py"
    path.write_text("def load(path):\n    return path\n")
    return path


@pytest.mark.parametrize("name", ["pipeline", "boards"])
def test_the_command_line_refuses_it(name: str, root: Path, tmp_path: Path) -> None:
    other = shadow(tmp_path, name)
    process = run_python("import sys, soc_stages; sys.exit(soc_stages.main())", tmp_path, root)
    assert (process.returncode, process.stdout) == (1, "")
    (line,) = process.stderr.splitlines()
    for text in (str(other), repr(name), str(root / name), "python3 -m venv"):
        assert text in line


@pytest.mark.parametrize("name", ["pipeline", "boards"])
def test_so_does_the_name_that_nobody_else_has(name: str, root: Path, tmp_path: Path) -> None:
    other = shadow(tmp_path, name)
    process = run_python("import soc_stages as pipeline; pipeline.load('model.bundle')", tmp_path, root)
    last = process.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: Python finds {other} under the name {name!r}")


def test_boards_of_another_project_are_seen_when_this_one_is_imported(root: Path, tmp_path: Path) -> None:
    other = shadow(tmp_path, "boards")
    process = run_python("import pipeline", tmp_path, root)
    assert process.returncode == 1
    assert f"ShadowedPackage: Python finds {other} under the name 'boards'" in process.stderr.splitlines()[-1]


def test_a_project_that_was_installed_over_this_one_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "soc_stages.py").write_text((root / "soc_stages.py").read_text())
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline" / "__init__.py").write_text('"""Pipes of lines."""\n')
    process = run_python("import sys, soc_stages; sys.exit(soc_stages.main())", tmp_path, root)
    assert process.returncode == 1
    assert "__init__.py is another project's, which was installed over this one" in process.stderr


def test_without_a_clash_it_is_the_same_package(root: Path, tmp_path: Path) -> None:
    code = "import pipeline, soc_stages; print(soc_stages.load is pipeline.load, hasattr(soc_stages, 'nothing'))"
    process = run_python(code, tmp_path, root)
    assert (process.stdout, process.stderr) == ("True False\n", "")
