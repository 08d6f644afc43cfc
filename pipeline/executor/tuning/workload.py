"""Workload: a kernel's function as MetaSchedule takes it, and the key under which its schedule is kept."""

from __future__ import annotations

import json
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir

from pipeline.executor.schedules.language import elementary
from pipeline.executor.tuning.database import Key


def module_of(function: Any) -> Any:
    """Return a module with the function as its ``main``, without what depends on the model it comes from."""
    bare = function.without_attr("global_symbol") if "global_symbol" in (function.attrs or {}) else function
    return tvm.IRModule({"main": bare.with_attr({"global_symbol": "main", "tirx.noalias": True})})


def key_of(function: Any, target: Any, cores: int) -> Key:
    """Return the key of a function that is built for so many cores of a target."""
    shapes = ", ".join(f"{each.dtype}{[int(extent) for extent in each.shape]}" for each in function.params)
    structure = tvm_ffi.structural_hash(module_of(function)["main"]) & (1 << 64) - 1
    described = json.dumps(_plain(target.export()), sort_keys=True)
    return Key(f"{structure:016x}", shapes, described, cores, str(tvm.__version__))


def _plain(value: Any) -> Any:
    """Return a target's description, which TVM gives in containers of its own, as JSON has it."""
    if hasattr(value, "items"):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, str | int | float | bool):
        return value
    return [_plain(each) for each in value]


def finished(function: Any) -> Any:
    """Return a scheduled function as a stage gets it."""
    return elementary.without_library(function)


def with_cores(target: Any, cores: int) -> Any:
    """Return the target as MetaSchedule wants it, which divides work among so many cores."""
    return tvm.target.Target({**_plain(target.export()), "num-cores": cores})


def scheduled(function: Any, trace: str) -> Any | None:
    """Return the function with a schedule applied that was kept as JSON, or None if it does not fit it."""
    schedule = s_tir.Schedule(module_of(function), debug_mask="none")
    try:
        s_tir.Trace.apply_json_to_schedule(json.loads(trace), schedule)
    except Exception:  # noqa: BLE001 - whatever is wrong with a schedule, the rule's own takes its place
        return None
    return schedule.mod["main"]
