"""Target checks of a board: available compilers and known processors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.core.board.board import Board, Device
from pipeline.errors import BoardError, near, reason
from pipeline.executor import core_kinds, devices, host_target
from pipeline.system.native_output import quietly


def check(board: Board, origin: Path | str) -> None:
    """Raise `BoardError` for a target or processor unknown to its compiler.

    LLVM itself only warns of a processor that it does not know, and makes code for any.
    """
    for device in board.devices:
        if device.target is not None:
            _check(device, f"{origin}: device {device.name!r}")
        for cluster in device.clusters:
            if cluster.target:
                title = f"{origin}: device {device.name!r}, cluster {cluster.name!r}"
                _check(core_kinds.at_cluster(device, cluster), title)


def _check(device: Device, title: str) -> None:
    compiler = devices.compiler(device)
    if compiler is None:
        _check_tvm(device, title)
        return
    try:
        compiler.check(device)
    except BoardError as error:
        raise BoardError(f"{title}: {error}") from None


def _check_tvm(device: Device, title: str) -> None:
    from tvm.target.codegen import llvm_is_valid_cpu

    target = _parse_target(device, title)
    if target.kind.name != "llvm":
        return
    cpu, triple = (str(target.attrs.get(key, "") or "") for key in ("mcpu", "mtriple"))
    # LLVM writes its warnings to the process's standard error.
    valid = not cpu or quietly(lambda: bool(llvm_is_valid_cpu(cpu, triple)))
    if not valid:
        raise BoardError(
            f"{title}: LLVM knows no processor {cpu!r}{f' of {triple}' if triple else ''}{_near(cpu, target)}"
        )


def _parse_target(device: Device, title: str) -> Any:
    try:
        return quietly(lambda: host_target.target(device.target))
    except Exception as error:  # noqa: BLE001 - TVM raises what it likes for what it does not take
        raise BoardError(f"{title}: TVM does not take its target: {reason(error)}") from None


def _near(cpu: str, target: Any) -> str:
    from tvm.target.codegen import llvm_get_cpu_archlist

    # With the processor that is unknown, LLVM would complain on the way.
    bare = type(target)({key: str(target.attrs[key]) for key in ("mtriple",) if key in target.attrs} | {"kind": "llvm"})
    return near(cpu, quietly(lambda: [str(name) for name in llvm_get_cpu_archlist(bare)]))
