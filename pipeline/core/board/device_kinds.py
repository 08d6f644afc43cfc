"""Kinds of device: one entry per kind with all its capabilities.

A new kind is a file with its adapter, a subclass of `pipeline.executor.devices.base.DeviceRuntime`, and one line here.
The entries are plain data, and name adapters as text: planning, boards and simulation read them without loading TVM.
A package of its own has the entry as an object, which an entry point of the group `GROUP` names; see docs/runtimes.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pipeline.errors import BoardError, near
from pipeline.system.entry_points import entry_names, entry_owner, load_entry

GROUP = "soc_pipeline.devices"
"""Entry-point group for kinds of device from other packages."""

CPU_EFFICIENCY: Mapping[str, float] = {"depthwise": 1.4, "pooling": 0.6, "reduction": 1.2}
"""Share of a core's attainable rates per family of operators; the missing ones reach all of it. They are medians over
the 639 fused groups of nine well-known networks, measured on an x86-64 core with AVX-512. Shares above 1 are of small
tensors, still in the caches."""

ARM_EFFICIENCY: Mapping[str, float] = {"depthwise": 0.45, "pooling": 0.45}
"""The same of Arm's cores, by published times: their two load ports or one feed few products per value read."""


@dataclass(frozen=True)
class DeviceKind:
    """A kind of device; defaults are of a processor beside the CPU."""

    name: str
    """Name in boards and addresses."""
    adapter: str = ""
    """``"module:Class"`` of its `DeviceRuntime`, imported when a device is first used; empty for a kind that only the
    caller's own ``create`` makes."""
    computes: bool = True
    """Stages are compiled for it; others need no code, or a function."""
    is_processor: bool = False
    """True for devices of a machine's CPU cores: their memory is the caller's, and kernels change layouts in it."""
    occupies_cores: bool = True
    """A run keeps the stage's host cores busy, so that no other stage may run on them meanwhile."""
    is_remote: bool = False
    """True for devices of another machine, reached by an address whose scheme is the kind's name."""
    assigns_cores: bool = True
    """The plan chooses a stage's cores; a server of this project shares out its own to its slots."""
    overlaps: bool = False
    """True for a device with one frame at a time in each slot: further replicas of a stage only overlap its
    transfers."""
    in_files: bool = True
    """A board's file may name it; functions are in no file."""
    offered_to_peers: bool = True
    """A server lets other machines use it."""
    has_islands: bool = False
    """Operators in its stages may be computed by the model's own runtime, see `pipeline.core.packed_model`."""
    detectable: bool = False
    """True for kinds that this machine can be searched for; see `DeviceRuntime.detect`."""
    target_kind: str = ""
    """Name of its targets, where that is not the kind's."""
    model_format: str = ""
    """Format of its stages, ``"onnx"`` or ``"tflite"``, where a foreign runtime runs them; empty if they are compiled
    from Relax."""
    efficiency: Mapping[str, float] = field(default_factory=dict)
    """Share of its rates that each family of operators usually reaches."""
    is_cpu_runtime: bool = False
    """True for a runtime that executes stages of a CPU's device, as one of the device's ``runtimes``."""
    command_keys: tuple[str, ...] = ()
    """Keys of its targets that have commands, which a build runs."""
    planning: str = ""
    """Module whose ``verdict(inputs, bindings, outputs, target)`` returns the seconds that the kind's own compiler
    estimates for a fused group, and why it cannot run it; empty if TVM compiles."""
    cluster_resource: str = ""
    """Name among the resources of a cluster's nodes, by default ``device:`` and its name."""

    @property
    def has_slots(self) -> bool:
        """True if it divides its own cores among several frames."""
        return not self.assigns_cores

    @property
    def is_served_in_slots(self) -> bool:
        """True if a server has several, each with its own cores or none."""
        return self.occupies_cores or not self.computes

    @property
    def target(self) -> str:
        """The ``kind`` of its targets."""
        return self.target_kind or self.name


_kinds: dict[str, DeviceKind] = {}


def register(kind: DeviceKind) -> None:
    """Add a kind of device; `BoardError` if there is one of this name."""
    if kind.name in _kinds:
        raise BoardError(f"there is a kind of device {kind.name!r} already; choose another name")
    _kinds[kind.name] = kind


def find_kind(name: str) -> DeviceKind | None:
    """Return a kind by name, or None; raise `BoardError` for a broken package's."""
    # Other packages are only asked for what is not here: to search for them takes milliseconds.
    return _kinds.get(name) or _load_kind(name)


def device_kind(name: str) -> DeviceKind:
    """Return a kind by name; an unknown one gets the defaults."""
    return find_kind(name) or DeviceKind(name)


def kind_names(condition: Callable[[DeviceKind], bool] = lambda _: True) -> tuple[str, ...]:
    """Return the names of kinds under a condition, packages' last."""
    kinds = {**_kinds, **{name: _try_kind(name) for name in entry_names(GROUP) if name not in _kinds}}
    return tuple(name for name, kind in kinds.items() if kind is not None and condition(kind))


def _load_kind(name: str) -> DeviceKind | None:
    kind = load_entry(GROUP, name)
    if kind is None:
        return None
    if not isinstance(kind, DeviceKind) or kind.name != name:
        title = f"{name!r} of the entry points {GROUP!r}, in the package {entry_owner(GROUP, name)},"
        raise BoardError(f"{title} must be a DeviceKind of this name; it is {kind!r}")
    return kind


def _try_kind(name: str) -> DeviceKind | None:
    """Return a package's kind; warn if it is broken."""
    try:
        return _load_kind(name)
    except BoardError as error:
        warnings.warn(str(error), RuntimeWarning, stacklevel=3)
        return None


def describe_unknown(name: str, candidates: tuple[str, ...] | None = None) -> str:
    """List all kinds, and similar names."""
    names = kind_names() if candidates is None else candidates
    return f"there are {', '.join(names)}{near(name, names)}"


_DEVICES = "pipeline.executor.devices"
_REMOTE = "pipeline.remote.device:RemoteRuntime"

register(
    DeviceKind(
        "cpu", f"{_DEVICES}.cpu:CpuRuntime", is_processor=True, has_islands=True, target_kind="llvm",
        efficiency=CPU_EFFICIENCY,
    )
)  # fmt: skip
register(
    DeviceKind(
        "cuda", f"{_DEVICES}.cuda:CudaRuntime", overlaps=True, occupies_cores=False, detectable=True,
        cluster_resource="GPU",
    )
)  # fmt: skip
register(
    DeviceKind("vta", "boards.vta.device:VtaRuntime", occupies_cores=False, planning="boards.vta.lowering.planning")
)
register(
    DeviceKind(
        "remote", _REMOTE, is_remote=True, assigns_cores=False, overlaps=True, occupies_cores=False, has_islands=True,
        offered_to_peers=False,
    )
)  # fmt: skip
# TVM's server has one session at a time, so that replicas overlap nothing.
register(DeviceKind("rpc", _REMOTE, is_remote=True, occupies_cores=False, offered_to_peers=False))
register(DeviceKind("simulated", f"{_DEVICES}.simulated:SimulatedRuntime", computes=False, occupies_cores=False))
register(DeviceKind("null", f"{_DEVICES}.null:NullRuntime", computes=False, occupies_cores=False))
# A function neither travels to another machine nor is in a file.
register(
    DeviceKind(
        "python", f"{_DEVICES}.python:PythonRuntime", computes=False, occupies_cores=False, in_files=False,
        offered_to_peers=False,
    )
)  # fmt: skip


def _runtime_kind(name: str, adapter: str, model_format: str, command_keys: tuple[str, ...] = ()) -> DeviceKind:
    """Return the entry of a foreign runtime on CPU cores."""
    return DeviceKind(
        name, f"{_DEVICES}.{adapter}", model_format=model_format, has_islands=True, is_cpu_runtime=True,
        efficiency=CPU_EFFICIENCY, command_keys=command_keys,
    )  # fmt: skip


register(_runtime_kind("onnxruntime", "onnx_runtime:OnnxRuntime", "onnx"))
register(_runtime_kind("openvino", "openvino_runtime:OpenVinoRuntime", "onnx"))
register(_runtime_kind("ncnn", "ncnn_runtime:NcnnRuntime", "onnx"))
register(_runtime_kind("litert", "litert:LiteRtRuntime", "tflite", ("compile",)))
# A server makes devices of a kind, without the target that names the loader.
register(
    DeviceKind(
        "vendor", f"{_DEVICES}.vendor:VendorRuntime", model_format="onnx", occupies_cores=False, offered_to_peers=False,
        command_keys=("compile", "supported"),
    )
)  # fmt: skip
