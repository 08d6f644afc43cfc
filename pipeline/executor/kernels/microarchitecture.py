"""Microarchitecture: processor parameters for kernels, read from a target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.executor.host_target import cpu_features

KIB = 1024

TASK_OPERATIONS = 500_000
"""Operations per task, worth waking another core: a few microseconds."""

LOAD_LATENCY = 4.0
"""Cycles of a load from the first-level cache."""

TASK_ELEMENTS = 1 << 15
"""Elements moved or computed one by one per task, worth waking another core."""


class _ArmCore(NamedTuple):
    """Parameters of an Arm core from manuals and LLVM's tables.

    `l1_kib` and `ways`: size in KiB and ways of the first-level data cache.
    """

    ports: int
    latency: float
    l1_kib: int
    ways: int
    in_order: bool = False


_OLD_LITTLE, _LITTLE = _ArmCore(1, 10.0, 32, 4, in_order=True), _ArmCore(1, 4.0, 32, 4, in_order=True)
_BIG = _ArmCore(2, 4.0, 64, 4)
_ARM_CORES = {
    **dict.fromkeys(("cortex-a34", "cortex-a35", "cortex-a53"), _OLD_LITTLE),
    **dict.fromkeys(("cortex-a55", "cortex-a320", "cortex-a510", "cortex-a520"), _LITTLE),
    **dict.fromkeys(("cortex-a57", "cortex-a72"), _ArmCore(1, 7.0, 32, 2)),
    **dict.fromkeys((f"cortex-{name}" for name in ("a76", "a76ae", "a77", "a78", "a78ae", "a78c", "x1")), _BIG),
    **dict.fromkeys((f"neoverse-{name}" for name in ("n1", "n2", "v1", "v2")), _BIG),
}
_OTHER_ARM = _ArmCore(2, 4.0, 32, 4)


SCHEDULED_AS = dict.fromkeys(("cortex-a76", "cortex-a77", "cortex-a78", "cortex-a78ae"), "neoverse-n1")
"""Scheduling aliases: a core with the same instructions and vector units, known better to LLVM.

LLVM's tables for these are those of Cortex-A57, which has half of the units; Neoverse N1 is a Cortex-A76 for servers,
and the A78 has the same two (Arm's Software Optimization Guides).
"""


@dataclass(frozen=True)
class Microarchitecture:
    """Processor parameters behind tile sizes."""

    lanes: int
    """float32 values in one vector register."""
    registers: int
    """Vector registers."""
    l1_bytes: int
    l2_bytes: int
    """Data caches that one core can count on."""
    dots: str = "plain"
    """Form of products of four bytes with four others: ``"amx"`` (of whole tiles, else ``"vnni"``), ``"vnni"``,
    ``"pairs"`` (of 16 bits), ``"mmla"`` (also eight, as matrices), ``"sdot"``, ``"mlal"`` (two products in 16 bits), or
    ``"plain"``."""
    weights: str = "float32"
    """Dtype in which float32 weights are stored: ``"float32"``, ``"float16"`` or ``"bfloat16"``."""
    layouts: Callable[[Any], Any] | None = field(default=None, compare=False)
    """Function from a kernel's layout of float32 weights to the layout to take, which tuning may have chosen."""
    task_operations: int = TASK_OPERATIONS
    """Operations that another core is woken for."""
    lane_products: bool = False
    """True if one lane of a vector is a factor at no cost, so that elements are loaded a vector at a time."""
    in_order: bool = False
    """True if an instruction waits for those before it, so that the order that they are written in counts."""
    ports: int = 2
    """Fused multiply-adds of vectors that start in a cycle."""
    latency: float = 4.0
    """Cycles of one until its result can be added to again."""
    way_bytes: int = 4 * KIB
    """Bytes per way of the first-level data cache: addresses so far apart share a set."""
    multiplies_halves: bool = False
    """True if vectors of float16 are multiplied and added, twice as many numbers as of float32."""
    fuses: bool = False
    """True if a product and a sum are one instruction, which rounds once."""
    pairs: str = ""
    """Form of products of two bfloat16 with two others: ``"amx"`` (of whole tiles), ``"avx512"``, ``"bfmmla"``, or
    nothing if there is none."""
    arithmetic: str = "float32"
    """Dtype in which float32 numbers are multiplied: ``"float32"``, ``"float16"`` or ``"bfloat16"``."""
    looks_up_bytes: bool = False
    """True if AVX-512 looks up 64 bytes at once."""
    item_bytes: int = 4
    """Bytes of a number that determines tiles."""

    @property
    def narrow_formats(self) -> tuple[str, ...]:
        """Number formats of 16 bits that it multiplies faster than float32."""
        return (*(["bfloat16"] if self.pairs else []), *(["float16"] if self.multiplies_halves else []))

    @property
    def gathers(self) -> bool:
        """True with gather instructions such as AVX2's; 64-bit lanes have a maximum then."""
        return self.lanes > 4


def of_target(target: Any) -> Microarchitecture:
    """Return an LLVM target's microarchitecture, with this machine's or typical caches."""
    from tvm.target import codegen

    features = cpu_features(target)
    triple = str(target.attrs.get("mtriple", ""))
    # TVM's own answer is 512 bits for every x86 processor.
    lanes = 16 if "avx512f" in features else 8 if "avx" in features else 4
    # AVX-512 and AArch64 name 32 vector registers; SSE and AVX name 16.
    is_arm64 = triple.startswith(("aarch64", "arm64"))
    registers = 32 if lanes == 16 or is_arm64 else 16
    # A target says nothing of caches: only those of this very processor can be looked up.
    host = str(codegen.llvm_get_system_cpu())
    is_host = str(target.attrs.get("mcpu", "")) in {host, SCHEDULED_AS.get(host, host)}
    l1_bytes, l2_bytes = (_cache_bytes(1), _cache_bytes(2)) if is_host else (0, 0)
    # Cores with AVX-512 have 1 MiB since Skylake-SP; of others 512 KiB are common.
    l2_bytes = l2_bytes or (1024 if lanes >= 16 else 512) * KIB
    cpu = Microarchitecture(lanes, registers, l1_bytes or 32 * KIB, l2_bytes, _dots(features, lanes, is_arm64=is_arm64))
    cpu = replace(
        cpu, multiplies_halves=is_arm64 and "fullfp16" in features, pairs=_pairs(features, is_arm64=is_arm64),
        fuses=is_arm64 or not features.isdisjoint(("fma", "avx512f")), looks_up_bytes="avx512vbmi" in features,
    )  # fmt: skip
    return _describe_arm(cpu, _arm_core(target), l1_bytes) if is_arm64 else cpu


def _describe_arm(cpu: Microarchitecture, core: _ArmCore, l1_bytes: int) -> Microarchitecture:
    """Return an Arm core's parameters, with a detected or tabulated cache."""
    way_bytes = (l1_bytes or core.l1_kib * KIB) // core.ways
    return replace(
        cpu, l1_bytes=l1_bytes or core.l1_kib * KIB, way_bytes=way_bytes, lane_products=True,
        in_order=core.in_order, ports=core.ports, latency=core.latency,
    )  # fmt: skip


def _arm_core(target: Any) -> _ArmCore:
    return _ARM_CORES.get(str(target.attrs.get("mcpu", "")), _OTHER_ARM)


def is_in_order(target: Any) -> bool:
    """Test if a target's processor is known to issue in order."""
    return _arm_core(target).in_order


def _dots(features: frozenset[str], lanes: int, *, is_arm64: bool) -> str:
    """Return the way with the fewest instructions."""
    # Half as wide, the instructions are part of AVX-VNNI, or of AVX-512 with vectors of any length.
    vnni = {16: ("avx512vnni",), 8: ("avxvnni", "avx512vnni")}.get(lanes, ())
    if features.intersection(vnni):
        return "amx" if {"amx-int8", "avx512vnni"} <= features else "vnni"
    if {4: "sse2", 8: "avx2", 16: "avx512bw"}[lanes] in features:
        return "pairs"
    if "dotprod" in features:
        return "mmla" if "i8mm" in features else "sdot"
    return "mlal" if is_arm64 else "plain"


def _pairs(features: frozenset[str], *, is_arm64: bool) -> str:
    """Return the form of products of bfloat16."""
    if is_arm64:
        return "bfmmla" if "bf16" in features else ""
    # The first processors with AMX multiply bfloat16 in vectors at half of float32's rate.
    return "amx" if "amx-bf16" in features else "avx512" if {"avx512bf16", "avx512f"} <= features else ""


def _cache_bytes(level: int) -> int:
    """Return this machine's data cache size, 0 if unknown."""
    try:
        for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
            if (folder / "level").read_text().strip() == str(level) and "Inst" not in (folder / "type").read_text():
                # Linux gives KiB here whatever the size is (drivers/base/cacheinfo.c).
                return int((folder / "size").read_text().strip().removesuffix("K")) * KIB
    except (OSError, ValueError):
        pass
    return 0


def tune_target(target: Any) -> Any:
    """Return the target with LLVM's preferences for these kernels."""
    from tvm.target import Target

    features, preferences = cpu_features(target), list[str]()
    # Vectors as wide as the registers: for many processors LLVM prefers half of a 512-bit one, out of care for the
    # clock rate of code with a few vector instructions; these kernels do little else, and run at half their speed.
    if "prefer-256-bit" in features:
        preferences.append("-prefer-256-bit")
    # Such cores load 64 or 128 bits per cycle, so that a pair saves nothing; it holds up all that stands behind it.
    if is_in_order(target) and "slow-paired-128" not in features:
        preferences.append("+slow-paired-128")
    cpu = str(target.attrs.get("mcpu", ""))
    if not preferences and cpu not in SCHEDULED_AS:
        return target
    description = dict(target.export())
    description["mattr"] = [*(str(feature) for feature in description.get("mattr", ())), *preferences]
    return Target({**description, **({"mcpu": SCHEDULED_AS[cpu]} if cpu in SCHEDULED_AS else {})})
