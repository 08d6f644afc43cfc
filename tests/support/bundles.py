"""Steps that the tests of bundles share."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import BundleError
from pipeline.executor.bundle import Bundle
from pipeline.executor.devices.cpu import CpuRuntime
from pipeline.executor.stage_code import StageCode
from tests.support.onnx_models import Arrays

PARTS = ("stage0.so", "stage0.parameters", "stage1.so", "stage2.so", "stage2.parameters")


def outputs(bundle: Bundle, values: Arrays) -> Arrays:
    """Run one frame through the stages, on the devices that the plan names."""
    live = dict(values)
    for stage, code in zip(bundle.plan.stages, bundle.codes, strict=True):
        assert code is not None
        runtime = CpuRuntime(bundle.plan.board.device(stage.device))
        program = runtime.load(stage, code)
        results = runtime.run(program, [runtime.copy_in(live[spec.name]) for spec in stage.inputs])
        live |= {spec.name: runtime.copy_out(each).copy() for spec, each in zip(stage.outputs, results, strict=True)}
    return {spec.name: live[spec.name] for spec in bundle.plan.outputs}


def scale_parameters(code: StageCode | None, factor: float) -> StageCode | None:
    """Return a stage with each of its parameters of numbers multiplied."""
    if code is None:
        return None
    return code.with_parameters({name: (array * factor).astype(array.dtype) for name, array in code.parameters.items()})


def assert_refused(path: Path, *words: str) -> None:
    with pytest.raises(BundleError) as caught:
        Bundle.load(path)
    text = str(caught.value)
    assert len(text.splitlines()) == 1, text
    for word in (path.name, *words):
        assert word in text, text


def rewrite(folder: Path, change: Callable[[Any], None]) -> None:
    """Change the manifest and write the checksum that belongs to it."""
    content = json.loads((folder / "manifest.json").read_text())
    change(content)
    data = json.dumps(content).encode()
    (folder / "manifest.json").write_bytes(data)
    (folder / "manifest.sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  manifest.json\n")


def rewrite_library(folder: Path, data: bytes) -> None:
    """Change the first stage's code and write the checksums that belong to it."""
    (folder / "stage0.so").write_bytes(data)
    description = {"nbytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    rewrite(folder, lambda content: content["stages"][0]["library"].update(description))


def run_fuzzer(root: Path, name: str, source: Path, folder: Path, seeds: range) -> None:
    """Let a fuzzer of `tests.support` change copies of a bundle, in a process of its own."""
    command = [sys.executable, str(root / "tests" / "support" / f"{name}.py"), str(source), str(folder)]
    process = subprocess.run(
        [*command, str(seeds.start), str(len(seeds))],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert (process.returncode, process.stderr) == (0, "")
    (line,) = process.stdout.splitlines()
    assert line.startswith("loaded ")
    assert 0 < int(line.split()[1]) < len(seeds), "some changes do no harm, most do"
