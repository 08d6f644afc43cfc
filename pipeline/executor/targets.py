"""Targets: whether there can be code for what a board says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.board import Board, Device
from pipeline.errors import BoardError, near
from pipeline.executor import devices, processor
from pipeline.tvm_access import quiet


def check(board: Board, origin: Path | str) -> None:
    """Raise `BoardError` if a device's compiler does not take its target, or LLVM does not know its processor.

    LLVM itself only warns of a processor that it does not know, and makes code for any.
    """
    for device in board.devices:
        if device.target is not None:
            _check(device, f"{origin}: device {device.name!r}")


def _check(device: Device, title: str) -> None:
    own = devices.compiler(device)
    if own is None:
        _check_tvm(device, title)
        return
    try:
        own.check(device)
    except BoardError as error:
        raise BoardError(f"{title}: {error}") from None


def _check_tvm(device: Device, title: str) -> None:
    from tvm.target.codegen import llvm_is_valid_cpu

    target = _made(device, title)
    if target.kind.name != "llvm":
        return
    cpu, triple = (str(target.attrs.get(key, "") or "") for key in ("mcpu", "mtriple"))
    with quiet():
        valid = not cpu or bool(llvm_is_valid_cpu(cpu, triple))
    if not valid:
        raise BoardError(
            f"{title}: LLVM knows no processor {cpu!r}{f' of {triple}' if triple else ''}{_near(cpu, target)}"
        )


def _made(device: Device, title: str) -> Any:
    try:
        with quiet():
            return processor.target(device.target)
    except Exception as error:  # noqa: BLE001 - TVM raises what it likes for what it does not take
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise BoardError(f"{title}: TVM does not take its target: {reason}") from None


def _near(cpu: str, target: Any) -> str:
    from tvm.target.codegen import llvm_get_cpu_archlist

    # With the processor that is unknown, LLVM would complain on the way.
    bare = type(target)({key: str(target.attrs[key]) for key in ("mtriple",) if key in target.attrs} | {"kind": "llvm"})
    with quiet():
        return near(cpu, [str(each) for each in llvm_get_cpu_archlist(bare)])
