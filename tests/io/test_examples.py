"""Commands of examples/README.md do as it says, but for the installation."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import media

pytestmark = pytest.mark.slow
for package in ("av", "cyclonedds", "onnx", "onnxruntime", "rosbags", "sklearn", "yaml"):
    pytest.importorskip(package)

INSTALLATION = ("pip ", "python3 -m venv ")
PATIENCE_S = 300
LINKERS = shutil.which("aarch64-linux-gnu-gcc") or importlib.util.find_spec("ziglang")


def blocks(root: Path) -> dict[str, str]:
    """Return the commands of each section."""
    sections = re.split(r"^#+ ", (root / "examples" / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {
        section.partition("\n")[0]: "".join(re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL))
        for section in sections
    }


@pytest.fixture(scope="module")
def clone(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like a fresh clone's, with what all examples share."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(root / "examples", folder / "examples")
    (folder / "pipeline").symlink_to(root / "pipeline")
    (folder / "bin").mkdir()
    for name, words in (("soc-pipeline", " -m pipeline.cli"), ("python", "")):
        command = folder / "bin" / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n')
        command.chmod(0o755)
    run_commands(blocks(root)["Examples"], folder, root)
    return folder


def run_commands(commands: str, folder: Path, root: Path, **environment: str) -> str:
    """Return what is printed."""
    lines = [line for line in commands.splitlines() if not line.startswith(INSTALLATION)]
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(root), **environment}
    line = ["bash", "-e", "-c", "\n".join(lines)]
    with (folder / "printed").open("w+", encoding="utf-8") as output_file:
        shell = subprocess.Popen(
            line, cwd=folder, env=env, stdout=output_file, stderr=output_file, start_new_session=True
        )
        try:
            status = shell.wait(PATIENCE_S)
        finally:
            # What it has left in the background when a command failed.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
        output_file.seek(0)
        out = output_file.read()
    assert status == 0, out
    return out


def test_camera_to_overlay_video(clone: Path, root: Path) -> None:
    run_commands(blocks(root)["Camera to overlay video"], clone, root)
    lines = (clone / "overlay.jsonl").read_text(encoding="utf-8").splitlines()
    # A pattern is live, so that on a busy machine some of its pictures are passed over.
    assert 0 < len(lines) <= 90
    assert len(media.read(clone / "overlay.mp4")[0]) == len(media.read(clone / "again.mkv")[0]) == len(lines)


def test_a_node_and_a_bag(clone: Path, root: Path) -> None:
    out = run_commands(
        blocks(root)["A node for ROS 2, and a bag"], clone, root, ROS_DOMAIN_ID=str(20 + os.getpid() % 200)
    )
    answers = [line for line in out.splitlines() if " logits [1, 10]: " in line]
    assert len(answers) == len(set(answers)) == 100
    assert " 0 dropped, 0 without an answer by error" in out


def test_in_a_program_of_your_own(clone: Path, root: Path) -> None:
    assert "300 frames, " in run_commands(blocks(root)["In a program of your own"], clone, root)
    assert len((root / "examples" / "embed.py").read_text(encoding="utf-8").splitlines()) <= 20


def test_an_ultra96(clone: Path, root: Path) -> None:
    if not LINKERS:
        pytest.skip("needs a linker for Arm: aarch64-linux-gnu-gcc or ziglang")
    out = run_commands(blocks(root)["An Ultra96, from the model to the board"], clone, root)
    assert "all 5 tests passed" in out
    assert (clone / "ultra96.bundle" / "manifest.json").is_file()
    assert (clone / "simulated.npz").is_file()
