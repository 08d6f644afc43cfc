"""Host target: the processor of this machine as TVM sees it, and code for it."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pipeline.tvm.library import tvm_version

# LLVM's name of an instruction-set extension -> the flag by which Linux lists it.
X86_EXTENSIONS = {
    "sse4.1": "sse4_1", "sse4.2": "sse4_2", "avx": "avx", "avx2": "avx2", "fma": "fma", "f16c": "f16c",
    "bmi": "bmi1", "bmi2": "bmi2", "avx512f": "avx512f", "avx512dq": "avx512dq", "avx512cd": "avx512cd",
    "avx512bw": "avx512bw", "avx512vl": "avx512vl", "avx512ifma": "avx512ifma", "avx512vbmi": "avx512vbmi",
    "avx512vbmi2": "avx512_vbmi2", "avx512vnni": "avx512_vnni", "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq", "avx512bf16": "avx512_bf16", "avx512fp16": "avx512_fp16",
    "amx-tile": "amx_tile", "amx-bf16": "amx_bf16", "amx-int8": "amx_int8",
    "avxvnni": "avx_vnni", "gfni": "gfni", "vaes": "vaes", "vpclmulqdq": "vpclmulqdq",
}  # fmt: skip
_TILE_FLAGS = frozenset({"amx_tile", "amx_bf16", "amx_int8"})
# As in the kernel's arch/arm64/kernel/cpuinfo.c; those of x86 are in arch/x86/include/asm/cpufeatures.h.
_ARM = {
    "neon": "asimd", "fp-armv8": "fp", "dotprod": "asimddp", "fullfp16": "asimdhp", "i8mm": "i8mm", "bf16": "bf16",
    "sve": "sve", "sve2": "sve2", "lse": "atomics", "crc": "crc32",
}  # fmt: skip
_EXTENSIONS = {"x86_64": X86_EXTENSIONS, "aarch64": _ARM}
_SAME_MACHINE = {"amd64": "x86_64", "arm64": "aarch64", "x64": "x86_64"}


def machine(name: str = "") -> str:
    """Return an instruction set's usual name, by default this machine's: ``x86_64``, ``aarch64``, ..."""
    name = (name or platform.machine()).lower()
    return _SAME_MACHINE.get(name, name)


def flags(root: Path = Path("/"), name: str = "") -> frozenset[str]:
    """Return Linux's extension flags of this processor that programs may use, if available.

    `root` and `name` are of another machine's files and instruction set.
    """
    try:
        lines = (root / "proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    # Under emulation the list may be that of the processor below, which is another kind.
    key = "Features" if machine(name) == "aarch64" else "flags"
    flag_lists = (line.partition(":")[2] for line in lines if line.startswith(key))
    extensions = frozenset(next(flag_lists, "").split())
    is_refused = root == Path("/") and "amx_tile" in extensions and not _may_use_tiles()
    return extensions - _TILE_FLAGS if is_refused else extensions


def _may_use_tiles() -> bool:
    """Test if Linux lets this process use AMX's registers, which sandboxes may forbid."""
    # `arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)`, as kernels ask for it themselves.
    return bool(ctypes.CDLL(None).syscall(158, 0x1023, 18) == 0)


def full_name() -> str:
    """Return this processor's name, such as ``"AMD EPYC 7763"``, if available."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    # Arm's kernels give numbers, which at least tell processors apart.
    return facts.get("model name") or " ".join(
        facts[key] for key in ("Hardware", "CPU implementer", "CPU part") if key in facts
    )


def host_target(listed_flags: frozenset[str] | None = None) -> Any:
    """Return TVM's target for this processor's actual extensions, from `flags` by default.

    LLVM names the processor by its model number; a virtual machine may offer fewer extensions than that model
    has, or more, so each one that Linux reports is switched on or off one by one.
    """
    from tvm.target import Target

    processor = Target.from_device("cpu")
    listed_flags = flags() if listed_flags is None else listed_flags
    # Without Linux's list, what LLVM finds out by itself has to do.
    if not listed_flags:
        return processor
    features = cpu_features(processor)
    differ = {
        llvm: flag in listed_flags
        for llvm, flag in _EXTENSIONS.get(machine(), {}).items()
        if (flag in listed_flags) != (llvm in features)
    }
    if not differ:
        return processor
    attributes = [f"{'+' if on else '-'}{llvm}" for llvm, on in sorted(differ.items())]
    return Target(
        {
            "kind": "llvm",
            "mtriple": str(processor.attrs["mtriple"]),
            "mcpu": str(processor.attrs["mcpu"]),
            "mattr": attributes,
        }
    )


def target(description: Mapping[str, object] | None) -> Any:
    """Return TVM's target of a description, by default this machine's."""
    from tvm.target import Target

    if description is None:
        return host_target()
    attributes = dict(description)
    if "mtriple" in attributes:
        attributes["mtriple"] = _full_triple(str(attributes["mtriple"]))
    return Target(attributes)


def _full_triple(triple: str) -> str:
    """Return a triple with the vendor, omitted in compiler names.

    LLVM reads by position: in ``armv7l-linux-gnueabihf`` the vendor is Linux and the system unknown.  Its calls pass
    floats as no library of that board expects them, and divide by functions that no board has.
    """
    machine_name, *remainder = triple.split("-")
    return "-".join([machine_name, "unknown", *remainder]) if remainder[:1] == ["linux"] else triple


def needs(built_for: Any) -> tuple[str, tuple[str, ...]]:
    """Return a target's machine and required Linux flags."""
    triple = str(built_for.attrs.get("mtriple", "")) if built_for.kind.name == "llvm" else ""
    # A target without a triple is for the machine that it is built on.
    name = machine(triple.partition("-")[0])
    extensions = cpu_features(built_for)
    return name, tuple(sorted(flag for llvm, flag in _EXTENSIONS.get(name, {}).items() if llvm in extensions))


def cpu_features(built_for: Any) -> frozenset[str]:
    """Return LLVM's names of a target's extensions, also of those that its processor implies."""
    from tvm.target import codegen

    return frozenset(str(feature) for feature in codegen.llvm_get_cpu_features(built_for))


def other_tvm(built_with: str) -> str:
    """Explain an incompatible TVM release, else empty.

    Code calls functions of TVM's runtime, which stay the same only from one patch release to the next.
    """
    version = tvm_version()
    # Releases of TVM below 1.0 change its interfaces with the second number.
    if built_with.split(".")[:2] == version.split(".")[:2]:
        return ""
    return f"comes from TVM {built_with}, but this machine has {version}"


def misfit(
    built_machine: str, features: Iterable[str], listed_flags: frozenset[str] | None = None, name: str = ""
) -> str:
    """Explain code that cannot run here; empty for portable code.

    The machine has the extensions that `flags` lists and its own instruction set, unless others are given.
    """
    if built_machine and built_machine != machine(name):
        return f"is built for {built_machine}, but this machine is {machine(name)}; build it with this machine's board"
    listed_flags = flags() if listed_flags is None else listed_flags
    # A system that lists nothing may have everything.
    missing_flags = sorted(set(features) - listed_flags) if listed_flags else []
    if missing_flags:
        return f"uses {', '.join(missing_flags)}, which this processor does not have; build it for this processor"
    return ""
