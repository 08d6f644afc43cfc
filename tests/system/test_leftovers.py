"""What killed writers left is removed by the next who writes the same name, and nothing else is."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.core.plan.plan import TensorSpec
from pipeline.io.sinks import registry
from pipeline.system import files
from tests.support import media

KILLED_SAVE = """
import os, signal, sys
from pathlib import Path
from pipeline.system import files

with files.open_replacement(Path(sys.argv[1])) as stream:
    stream.write(b"half")
    stream.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""
KILLED_SINK = """
import os, signal, sys
from pipeline.core.plan.plan import TensorSpec
from pipeline.io.sinks import registry
from tests.support import media

with registry.open_sinks([sys.argv[1]], [TensorSpec("y", (48, 64, 3), "uint8")]) as sink:
    sink.add(media.frame_result(media.noise(1)[0], stamp=0))
    os.kill(os.getpid(), signal.SIGKILL)
"""
PICTURE = (TensorSpec("y", (48, 64, 3), "uint8"),)


def run_killed(code: str, argument: str, root: Path) -> None:
    process = subprocess.run([sys.executable, "-c", code, argument], check=False, cwd=root, timeout=120)
    assert process.returncode == -signal.SIGKILL


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_a_killed_save_left_is_removed_by_the_next(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    run_killed(KILLED_SAVE, str(path), root)
    assert len(names(tmp_path)) == 1
    files.write_atomically(tmp_path / "other.json", b"{}")
    assert len(names(tmp_path)) == 2, "of another name nothing is touched"
    files.write_atomically(path, b"{}")
    assert names(tmp_path) == ["other.json", "plan.json"]


@pytest.mark.parametrize("text", ["out.mp4", "out.npz", "out/", "bag:bag", "bag:bag?storage=sqlite3"])
def test_what_a_killed_recording_left_is_removed_by_the_next(root: Path, tmp_path: Path, text: str) -> None:
    pytest.importorskip("av")
    pytest.importorskip("rosbags")
    kind, colon, location = text.rpartition(":")
    place = f"{kind}{colon}{tmp_path / location}"
    if text == "out/":
        (tmp_path / "out").mkdir()
        run_killed(KILLED_SAVE, str(tmp_path / "out" / "frame.npz"), root)
    else:
        run_killed(KILLED_SINK, place, root)
    (leftover,) = [path for path in tmp_path.rglob(".*") if path.parent.name[0] != "."]
    with registry.open_sinks([place], PICTURE) as sink:
        sink.add(media.frame_result(media.noise(1)[0], stamp=0))
    assert not leftover.exists()
    assert names(tmp_path) == [location.strip("/").partition("?")[0]]
    assert media.count(tmp_path / names(tmp_path)[0]) == 1


def test_what_others_write_or_own_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    foreign = [".plan.json.original", ".plan.json.abcdefghi.tmp", ".other.json.abcdefgh.tmp", "plan.json.abcdefgh.tmp"]
    for name in foreign:
        (tmp_path / name).write_text("precious")
    link = tmp_path / ".plan.json.abcdefgh.tmp"
    link.symlink_to(tmp_path / foreign[0])
    with files.open_replacement(path) as stream:
        stream.write(b"first")
        files.write_atomically(path, b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"
    assert names(tmp_path) == sorted([*foreign, link.name, path.name])


def test_a_file_keeps_its_lock_until_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between being closed and renamed, another save took it for a leftover."""
    path, replace = tmp_path / "plan.json", Path.replace
    with monkeypatch.context() as patch:

        def save_another(self: Path, target: Path) -> Path:
            patch.setattr(Path, "replace", replace)
            files.write_atomically(path, b"second")
            return replace(self, target)

        patch.setattr(Path, "replace", save_another)
        files.write_atomically(path, b"first")
    assert path.read_bytes() == b"first"
    assert names(tmp_path) == ["plan.json"]
