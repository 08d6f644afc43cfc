"""The host's target has the features that the processor has; code for another one is recognised."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from tvm.target import Target

from pipeline.core.board.board import Device
from pipeline.errors import BuildError
from pipeline.executor import host_target
from pipeline.executor.build import compile_stage
from pipeline.executor.devices import computes
from pipeline.split import extract
from tests.support.onnx_models import IMAGE, check_outputs, node, save

SKYLAKE = {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "skylake-avx512"}
CORTEX = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72", "mattr": ["+neon"]}


@pytest.mark.parametrize(
    ("name", "default_target"),
    [("AMD64", "x86_64"), ("x86_64", "x86_64"), ("arm64", "aarch64"), ("aarch64", "aarch64"), ("riscv64", "riscv64")],
)
def test_machines_have_one_name_each(name: str, default_target: str) -> None:
    assert host_target.machine(name) == default_target


def test_this_machine() -> None:
    assert host_target.machine() == host_target.machine(platform.machine())


def test_this_machine_runs_what_is_built_for_it() -> None:
    machine, features = host_target.needs(host_target.target(None))
    assert machine == host_target.machine()
    assert host_target.misfit(machine, features) == ""


@pytest.mark.skipif(platform.machine() != "x86_64" or not host_target.flags(), reason="needs the flags of an x86 Linux")
def test_the_host_target_has_exactly_the_extensions_that_linux_reports() -> None:
    _, features = host_target.needs(host_target.host_target())
    assert set(features) == host_target.flags() & set(host_target.X86_EXTENSIONS.values())


@pytest.mark.skipif(platform.machine() != "x86_64", reason="takes away what only x86 has")
def test_an_extension_that_is_switched_off_is_not_used() -> None:
    """A virtual machine may offer less than its processor's model has."""
    fewer_flags = frozenset(flag for flag in host_target.flags() if not flag.startswith("avx512"))
    _, features = host_target.needs(host_target.host_target(fewer_flags))
    assert not [flag for flag in features if flag.startswith("avx512")]


def test_needs_are_read_from_the_target() -> None:
    machine, features = host_target.needs(Target(SKYLAKE))
    assert machine == "x86_64"
    assert {"avx512f", "avx2", "fma", "sse4_2"} <= set(features)
    assert "avx512_fp16" not in features
    assert host_target.needs(Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64"})) == (
        "x86_64",
        (),
    )
    assert host_target.needs(Target(CORTEX))[0] == "aarch64"
    assert "asimd" in host_target.needs(Target(CORTEX))[1]


def test_a_triple_without_a_vendor_is_for_linux() -> None:
    """LLVM takes ``linux`` for the vendor otherwise, and floats are passed as no library of the board expects them."""
    for triple, full in {
        "armv7l-linux-gnueabihf": "armv7l-unknown-linux-gnueabihf",
        "aarch64-linux-gnu": "aarch64-unknown-linux-gnu",
        "x86_64-conda-linux-gnu": "x86_64-conda-linux-gnu",
        "aarch64": "aarch64",
    }.items():
        assert host_target.target({"kind": "llvm", "mtriple": triple}).attrs["mtriple"] == full


def test_another_machine_does_not_fit() -> None:
    foreign = "aarch64" if host_target.machine() == "x86_64" else "x86_64"
    message = host_target.misfit(foreign, ())
    assert (
        message
        == f"is built for {foreign}, but this machine is {host_target.machine()}; build it with this machine's board"
    )


def test_a_missing_extension_is_named() -> None:
    listed_flags = frozenset({"avx", "fma"})
    message = host_target.misfit(host_target.machine(), ("avx", "avx512f", "avx2"), listed_flags)
    assert message == "uses avx2, avx512f, which this processor does not have; build it for this processor"
    assert host_target.misfit(host_target.machine(), ("avx", "fma"), listed_flags) == ""


def test_where_the_system_does_not_tell_nothing_is_refused() -> None:
    assert host_target.misfit(host_target.machine(), ("avx512f",), frozenset()) == ""


def test_code_for_another_machine_is_built_without_running_it(tmp_path: Path) -> None:
    graph = check_outputs(save(tmp_path / "m.onnx", [node("Relu", "x", "y")], IMAGE, ["y"]))
    (part,) = extract.parts(graph, [])
    foreign = CORTEX if host_target.machine() == "x86_64" else SKYLAKE
    code = compile_stage(extract.module(part), Device("board", target=foreign))
    assert code.machine == host_target.needs(Target(foreign))[0]
    assert host_target.misfit(code.machine, code.features)


def test_a_wrong_target_is_one_clear_error(tmp_path: Path) -> None:
    graph = check_outputs(save(tmp_path / "m.onnx", [node("Relu", "x", "y")], IMAGE, ["y"]))
    (part,) = extract.parts(graph, [])
    with pytest.raises(BuildError, match=r"device 'board' has a target that TVM does not take: .*abacus"):
        compile_stage(extract.module(part), Device("board", target={"kind": "abacus"}))


def test_which_devices_compute() -> None:
    assert [computes(Device("d", kind)) for kind in ("cpu", "null", "simulated")] == [True, False, False]
