"""Saving replaces nothing but an older bundle, and that only by a complete one."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import BundleError
from pipeline.executor.bundle import Bundle
from pipeline.split.graph import Graph
from pipeline.system.files import replace_folder, scratch_folder
from tests.support.bundles import outputs
from tests.support.onnx_models import assert_close, frame


def test_a_folder_that_is_no_bundle_is_never_replaced(small_bundle: Bundle, tmp_path: Path) -> None:
    cases = {
        "empty": [],
        "documents": ["thesis.txt"],
        "extension": ["manifest.json"],
        "site": ["manifest.json", "index.html"],
        "notes": ["manifest.json", "manifest.sha256", "notes.txt"],
    }
    for name, files in cases.items():
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).write_text("precious")
        with pytest.raises(BundleError, match="exists and is not a bundle; choose another name"):
            small_bundle.save(tmp_path / name)
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == sorted(files)
    (tmp_path / "file").write_text("precious")
    with pytest.raises(BundleError, match="exists and is not a bundle"):
        small_bundle.save(tmp_path / "file")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*cases, "file"]), "and nothing is left behind"


def test_a_bundle_is_replaced(small_bundle: Bundle, bundle_copy: Path, graph: Graph) -> None:
    running = Bundle.load(bundle_copy)
    (bundle_copy / "stage9.so").write_bytes(b"of an older bundle with more stages")
    small_bundle.save(bundle_copy)
    assert not (bundle_copy / "stage9.so").exists()
    assert [path.name for path in bundle_copy.parent.iterdir()] == ["copied.bundle"]
    values = frame(graph)
    assert_close(outputs(Bundle.load(bundle_copy), values), outputs(small_bundle, values), 0)
    assert_close(outputs(running, values), outputs(small_bundle, values), 0)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("fails", ["pipeline.executor.parameters.write", "pipeline.executor.manifest.write"])
def test_a_failing_save_leaves_the_old_bundle(
    small_bundle: Bundle, bundle_copy: Path, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files_before = contents(bundle_copy.parent)

    def fail(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fails, fail)
    with pytest.raises(BundleError, match=r"cannot save .*copied.bundle.*No space left on device"):
        small_bundle.save(bundle_copy)
    assert contents(bundle_copy.parent) == files_before
    assert [path.name for path in bundle_copy.parent.iterdir()] == ["copied.bundle"]


def test_without_an_exchange_of_names_an_interrupt_puts_the_old_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems can only rename one folder after the other."""
    for name in ("bundle", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    rename = Path.rename

    def stubborn(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise KeyboardInterrupt
        return rename(self, target)

    target, writer, former = (tmp_path / name for name in ("bundle", "new", "old"))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", stubborn)
        with pytest.raises(KeyboardInterrupt):
            replace_folder(target, writer, former, exchange=lambda first, second: False)
    assert contents(tmp_path) == {"bundle/file": b"bundle", "new/file": b"new"}
    replace_folder(target, writer, former, exchange=lambda first, second: False)
    assert contents(tmp_path) == {"bundle/file": b"new", "old/file": b"bundle"}


KILLED = """
import os, signal, sys
from pipeline.executor.bundle import Bundle
from pipeline.executor import manifest

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

manifest.write = killed
Bundle.load(sys.argv[1]).save(sys.argv[1])
"""


def test_what_a_killed_save_left_is_removed_by_the_next(small_bundle: Bundle, bundle_copy: Path) -> None:
    files_before = contents(bundle_copy.parent)
    process = subprocess.run(
        [sys.executable, "-c", KILLED, str(bundle_copy)], check=False, capture_output=True, timeout=60
    )
    assert process.returncode == -signal.SIGKILL
    assert len(list(bundle_copy.parent.iterdir())) == 2
    small_bundle.save(bundle_copy)
    assert contents(bundle_copy.parent) == files_before


def test_what_others_are_writing_or_own_is_not_removed(small_bundle: Bundle, bundle_copy: Path) -> None:
    descriptor = [
        bundle_copy.parent / name for name in (".copied.bundle.precious", ".copied.bundle.", ".other.bundle.abcdefgh")
    ]
    for folder in descriptor:
        folder.mkdir()
        (folder / "notes.txt").write_text("precious")
    link = bundle_copy.parent / ".copied.bundle.abcdefgh"
    link.symlink_to(descriptor[0])
    files_before = contents(bundle_copy.parent)
    with scratch_folder(bundle_copy) as scratch:
        (scratch / "new").mkdir()
        (scratch / "new" / "half").write_text("half written")
        small_bundle.save(bundle_copy)
        assert (scratch / "new" / "half").exists()
    assert contents(bundle_copy.parent) == files_before
    assert link.is_symlink()


def test_a_missing_folder_is_named(small_bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"there is no folder .*gone"):
        small_bundle.save(tmp_path / "gone" / "my.bundle")


@pytest.mark.parametrize("name", ["../escape", "a/b", "stage: 1?", "manifest", "ünï"])
def test_names_of_stages_need_not_be_names_of_files(small_bundle: Bundle, tmp_path: Path, name: str) -> None:
    from dataclasses import replace

    plan = replace(
        small_bundle.plan, stages=(replace(small_bundle.plan.stages[0], name=name), *small_bundle.plan.stages[1:])
    )
    (tmp_path / "in").mkdir()
    Bundle(plan, small_bundle.codes).save(tmp_path / "in" / "x.bundle")
    assert {path.name for path in tmp_path.iterdir()} == {"in"}
    assert Bundle.load(tmp_path / "in" / "x.bundle").plan.stages[0].name == name


def test_stages_without_code(small_bundle: Bundle, tmp_path: Path) -> None:
    Bundle(small_bundle.plan, [None, small_bundle.codes[1], None]).save(tmp_path / "part.bundle")
    assert [code is None for code in Bundle.load(tmp_path / "part.bundle").codes] == [True, False, True]
