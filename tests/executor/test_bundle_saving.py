"""Saving replaces nothing but an older bundle, and that only by a complete one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import BundleError
from pipeline.executor.bundle import Bundle
from pipeline.split.graph import Graph
from tests.executor.bundles import outputs
from tests.onnx_models import assert_close, frame


def test_a_folder_that_is_no_bundle_is_never_replaced(built: Bundle, tmp_path: Path) -> None:
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
            built.save(tmp_path / name)
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == sorted(files)
    (tmp_path / "file").write_text("precious")
    with pytest.raises(BundleError, match="exists and is not a bundle"):
        built.save(tmp_path / "file")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*cases, "file"]), "and nothing is left behind"


def test_a_bundle_is_replaced(built: Bundle, copied: Path, graph: Graph) -> None:
    running = Bundle.load(copied)
    (copied / "stage9.so").write_bytes(b"of an older bundle with more stages")
    built.save(copied)
    assert not (copied / "stage9.so").exists()
    assert [path.name for path in copied.parent.iterdir()] == ["copied.bundle"]
    values = frame(graph)
    assert_close(outputs(Bundle.load(copied), values), outputs(built, values), 0)
    assert_close(outputs(running, values), outputs(built, values), 0)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("fails", ["pipeline.executor.parameters.write", "pipeline.executor.manifest.write"])
def test_a_failing_save_leaves_the_old_bundle(
    built: Bundle, copied: Path, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(copied.parent)

    def fail(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fails, fail)
    with pytest.raises(BundleError, match=r"cannot save .*copied.bundle.*No space left on device"):
        built.save(copied)
    assert contents(copied.parent) == before
    assert [path.name for path in copied.parent.iterdir()] == ["copied.bundle"]


def test_an_interrupted_replacement_puts_the_old_bundle_back(
    built: Bundle, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(copied.parent)
    rename = Path.rename

    def stubborn(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", stubborn)
    with pytest.raises(KeyboardInterrupt):
        built.save(copied)
    assert contents(copied.parent) == before


def test_a_missing_folder_is_named(built: Bundle, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"there is no folder .*gone"):
        built.save(tmp_path / "gone" / "my.bundle")


@pytest.mark.parametrize("name", ["../escape", "a/b", "stage: 1?", "manifest", "ünï"])
def test_names_of_stages_need_not_be_names_of_files(built: Bundle, tmp_path: Path, name: str) -> None:
    from dataclasses import replace

    plan = replace(built.plan, stages=(replace(built.plan.stages[0], name=name), *built.plan.stages[1:]))
    (tmp_path / "in").mkdir()
    Bundle(plan, built.codes).save(tmp_path / "in" / "x.bundle")
    assert {path.name for path in tmp_path.iterdir()} == {"in"}
    assert Bundle.load(tmp_path / "in" / "x.bundle").plan.stages[0].name == name


def test_stages_without_code(built: Bundle, tmp_path: Path) -> None:
    Bundle(built.plan, [None, built.codes[1], None]).save(tmp_path / "part.bundle")
    assert [code is None for code in Bundle.load(tmp_path / "part.bundle").codes] == [True, False, True]
