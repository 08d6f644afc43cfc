"""A bundle gives the same answers wherever it is copied, and needs no compiler to do so."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.executor import host_target
from pipeline.executor.bundle import Bundle
from pipeline.split.graph import Graph
from tests.support.bundles import PARTS, outputs
from tests.support.onnx_models import assert_close, frame


def test_it_is_a_folder_of_named_parts(pristine: Path) -> None:
    opcodes = {path.name for path in pristine.iterdir()}
    assert opcodes == {"manifest.json", "manifest.sha256", *PARTS, "stage1.parameters"}
    content = json.loads((pristine / "manifest.json").read_text())
    assert content["format"] == 1
    assert [stage["machine"] for stage in content["stages"]] == [host_target.machine()] * 3


def test_saved_and_loaded_it_gives_the_same_answers(small_bundle: Bundle, pristine: Path, graph: Graph) -> None:
    values = frame(graph)
    reloaded = Bundle.load(pristine)
    assert reloaded.plan == small_bundle.plan
    assert_close(outputs(reloaded, values), outputs(small_bundle, values), 0)


def test_each_stage_has_its_own_device_again(small_bundle: Bundle, pristine: Path) -> None:
    """Fault 14 of the predecessor: after loading, the device is the first one."""
    assert [stage.device for stage in Bundle.load(pristine).plan.stages] == ["cpu", "second", "cpu"]


def test_a_loaded_bundle_is_saved_again(pristine: Path, tmp_path: Path, graph: Graph) -> None:
    Bundle.load(pristine).save(tmp_path / "again.bundle")
    names = sorted(path.name for path in pristine.iterdir())
    assert sorted(path.name for path in (tmp_path / "again.bundle").iterdir()) == names
    for name in names:
        assert (tmp_path / "again.bundle" / name).read_bytes() == (pristine / name).read_bytes()


def test_it_moves(
    small_bundle: Bundle, bundle_copy: Path, graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 21 of the predecessor: absolute paths inside.  No part has any, and a relative path does not matter."""
    for path in bundle_copy.iterdir():
        assert b"copied.bundle" not in path.read_bytes()
    (tmp_path / "deep" / "er").mkdir(parents=True)
    target = bundle_copy.rename(tmp_path / "deep" / "er" / "moved")
    monkeypatch.chdir(target.parent)
    reloaded = Bundle.load("moved")
    monkeypatch.chdir(tmp_path)
    values = frame(graph)
    assert_close(outputs(reloaded, values), outputs(small_bundle, values), 0)


RUN = """
import os, sys
import numpy as np
import pipeline
from pipeline.executor.bundle import Bundle

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("onnx", "cloudpickle") or name.startswith("tvm.relax"):
            raise AssertionError(f"{name} is imported")

sys.meta_path.insert(0, Blocker())
bundle = Bundle.load(sys.argv[1])
generator = np.random.default_rng(1)
frame = {spec.name: generator.standard_normal(spec.shape).astype(spec.dtype) for spec in bundle.plan.inputs}
with pipeline.load(bundle) as running:
    result = running.submit(frame).result(60)
if not isinstance(result, dict):
    names = [spec.name for spec in bundle.plan.outputs]
    result = dict(zip(names, result if isinstance(result, (list, tuple)) else [result]))
np.savez(sys.argv[2], **{name: np.asarray(value) for name, value in result.items()})
assert "onnx" not in sys.modules and "tvm.relax" not in sys.modules
"""


def test_it_runs_without_compiler_and_frontends(
    pristine: Path, small_bundle: Bundle, graph: Graph, root: Path, tmp_path: Path
) -> None:
    """Fault 22 of the predecessor: the runtime needs the compiler.  Nothing is printed either."""
    environment = {"TVM_USE_RUNTIME_LIB": "1", "PATH": "", "PYTHONPATH": os.fspath(root), "HOME": os.fspath(tmp_path)}
    command = [sys.executable, "-c", RUN, os.fspath(pristine), os.fspath(tmp_path / "found.npz")]
    process = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")
    reference = outputs(small_bundle, frame(graph))
    with np.load(tmp_path / "found.npz") as opcodes:
        assert_close({name: opcodes[name] for name in reference}, reference, 1e-6)


def unsafe(source: str) -> list[str]:
    """Return what could run code that is in a file: modules and calls."""
    opcodes = []
    for syntax in ast.walk(ast.parse(source)):
        if isinstance(syntax, ast.Import | ast.ImportFrom):
            names = (
                [syntax.module or ""] if isinstance(syntax, ast.ImportFrom) else [alias.name for alias in syntax.names]
            )
            opcodes += [
                name
                for name in names
                if name.partition(".")[0] in ("pickle", "cloudpickle", "shelve", "marshal", "dill")
            ]
        elif isinstance(syntax, ast.Call):
            name = ast.unparse(syntax.func)
            keywords = {word.arg: ast.unparse(word.value) for word in syntax.keywords}
            safe = keywords.get("allow_pickle", "False") == "False"
            # PyTorch's restricted reader makes nothing but tensors and plain containers.
            safe &= not name.endswith("torch.load") or keywords.get("weights_only") == "True"
            if name in ("eval", "exec") or name.endswith("joblib.load") or not safe:
                opcodes.append(name)
    return opcodes


def test_nothing_is_pickled(root: Path) -> None:
    """Loading a bundle from elsewhere must not run what is in it."""
    for folder in ("pipeline", "boards"):
        for path in sorted((root / folder).rglob("*.py")):
            assert unsafe(path.read_text(encoding="utf-8")) == [], path


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from cloudpickle import loads", "numpy.load(f, allow_pickle=True)", "eval(x)", "torch.load(f)"],
)
def test_what_would_be_unsafe_is_found(source: str) -> None:
    assert len(unsafe(source)) == 1


def test_loading_prints_nothing(pristine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for code in Bundle.load(pristine).codes:
        assert code is not None
        code.module()
    assert capfd.readouterr() == ("", "")


def test_saving_prints_nothing(small_bundle: Bundle, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    small_bundle.save(tmp_path / "x.bundle")
    assert capfd.readouterr() == ("", "")


def test_without_a_linker_there_is_one_message(
    graph: Graph, small_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.errors import BuildError

    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(BuildError, match="needs a C compiler as linker; install gcc or clang, or: pip install ziglang"):
        small_bundle.save(tmp_path / "x.bundle")
    assert list(tmp_path.iterdir()) == []


def test_a_pipeline_loads_a_path(pristine: Path, small_bundle: Bundle, graph: Graph) -> None:
    with pipeline.load(pristine) as running:
        assert running.plan == small_bundle.plan
