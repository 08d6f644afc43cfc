"""The host's target has the features that the processor has; code for another one is recognised."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from tvm.target import Target

from pipeline.board import Device
from pipeline.errors import BuildError
from pipeline.executor import processor
from pipeline.executor.build import compile_stage
from pipeline.executor.devices import computes
from pipeline.split import extract
from tests.onnx_models import IMAGE, checked, node, save

SKYLAKE = {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "skylake-avx512"}
CORTEX = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72", "mattr": ["+neon"]}


@pytest.mark.parametrize(
    ("name", "usual"),
    [("AMD64", "x86_64"), ("x86_64", "x86_64"), ("arm64", "aarch64"), ("aarch64", "aarch64"), ("riscv64", "riscv64")],
)
def test_machines_have_one_name_each(name: str, usual: str) -> None:
    assert processor.machine(name) == usual


def test_this_machine() -> None:
    assert processor.machine() == processor.machine(platform.machine())


def test_this_machine_runs_what_is_built_for_it() -> None:
    machine, features = processor.needs(processor.target(None))
    assert machine == processor.machine()
    assert processor.misfit(machine, features) == ""


@pytest.mark.skipif(platform.machine() != "x86_64" or not processor.flags(), reason="needs the flags of an x86 Linux")
def test_the_host_target_has_exactly_the_extensions_that_linux_reports() -> None:
    _, features = processor.needs(processor.host_target())
    assert set(features) == processor.flags() & set(processor._X86.values())


@pytest.mark.skipif(platform.machine() != "x86_64", reason="takes away what only x86 has")
def test_an_extension_that_is_switched_off_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual machine may offer less than its processor's model has."""
    less = frozenset(flag for flag in processor.flags() if not flag.startswith("avx512"))
    monkeypatch.setattr(processor, "flags", lambda: less)
    _, features = processor.needs(processor.host_target())
    assert not [flag for flag in features if flag.startswith("avx512")]


def test_needs_are_read_from_the_target() -> None:
    machine, features = processor.needs(Target(SKYLAKE))
    assert machine == "x86_64"
    assert {"avx512f", "avx2", "fma", "sse4_2"} <= set(features)
    assert "avx512_fp16" not in features
    assert processor.needs(Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64"})) == ("x86_64", ())
    assert processor.needs(Target(CORTEX))[0] == "aarch64"
    assert "asimd" in processor.needs(Target(CORTEX))[1]


def test_another_machine_does_not_fit() -> None:
    other = "aarch64" if processor.machine() == "x86_64" else "x86_64"
    message = processor.misfit(other, ())
    assert (
        message
        == f"is built for {other}, but this machine is {processor.machine()}; build it with this machine's board"
    )


def test_a_missing_extension_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "flags", lambda: frozenset({"avx", "fma"}))
    message = processor.misfit(processor.machine(), ("avx", "avx512f", "avx2"))
    assert message == "uses avx2, avx512f, which this processor does not have; build it for this processor"
    assert processor.misfit(processor.machine(), ("avx", "fma")) == ""


def test_where_the_system_does_not_tell_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "flags", frozenset)
    assert processor.misfit(processor.machine(), ("avx512f",)) == ""


def test_code_for_another_machine_is_built_without_running_it(tmp_path: Path) -> None:
    graph = checked(save(tmp_path / "m.onnx", [node("Relu", "x", "y")], IMAGE, ["y"]))
    (part,) = extract.parts(graph, [])
    other = CORTEX if processor.machine() == "x86_64" else SKYLAKE
    code = compile_stage(extract.module(part), Device("board", target=other))
    assert code.machine == processor.needs(Target(other))[0]
    assert processor.misfit(code.machine, code.features)


def test_a_wrong_target_is_one_clear_error(tmp_path: Path) -> None:
    graph = checked(save(tmp_path / "m.onnx", [node("Relu", "x", "y")], IMAGE, ["y"]))
    (part,) = extract.parts(graph, [])
    with pytest.raises(BuildError, match=r"device 'board' has a target that TVM does not take: .*abacus"):
        compile_stage(extract.module(part), Device("board", target={"kind": "abacus"}))


def test_which_devices_compute() -> None:
    assert [computes(Device("d", kind)) for kind in ("cpu", "null", "simulated")] == [True, False, False]
