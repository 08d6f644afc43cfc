"""Models written in Relax, for what ONNX cannot say: run as one stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import relax

from pipeline.core.numerics import EXACT, Numerics
from pipeline.core.plan.plan import StagePlan, TensorSpec
from pipeline.executor import host_target
from pipeline.executor import kernels as schedules
from pipeline.executor.build import compile_stage
from pipeline.executor.devices.cpu import CpuRuntime
from pipeline.executor.executable import CompileOptions
from pipeline.tvm.access import compiler_lock
from tests.support.onnx_models import HOST


def module(inputs: Mapping[str, np.ndarray], make: Callable[..., Any]) -> Any:
    """Return the module whose ``main`` computes what `make` returns for its inputs, each step a variable."""
    builder = relax.BlockBuilder()
    params = [relax.Var(name, relax.TensorType(value.shape, str(value.dtype))) for name, value in inputs.items()]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(make(builder.emit, *params))
        builder.emit_func_output(result)
    return builder.get()


def run(
    module: Any, inputs: Mapping[str, np.ndarray], cores: int = 1, numerics: Numerics = EXACT, **options: Any
) -> np.ndarray:
    """Compile and run a module of one result; `options` are those of `compile_stage`."""
    runtime, ty = CpuRuntime(HOST), module["main"].ret_ty
    specs = [TensorSpec(name, value.shape, str(value.dtype)) for name, value in inputs.items()]
    result = TensorSpec("result", tuple(int(each) for each in ty.shape), str(ty.dtype))
    stage = StagePlan("test", "cpu", tuple(specs), (result,))
    program = runtime.load(stage, compile_stage(module, HOST, cores, CompileOptions(numerics=numerics, **options)))
    return np.array(runtime.copy_out(runtime.run(program, [runtime.copy_in(each) for each in inputs.values()])[0]))


def parameters(module: Any, numerics: Numerics) -> list[np.ndarray]:
    """Return what a module keeps of its constants when it is compiled."""
    return list(compile_stage(module, HOST, options=CompileOptions(numerics=numerics)).parameters.values())


def kernels(module: Any, **options: Any) -> dict[str, str]:
    """Return a module's functions with their kernels; `options` are those of `optimise`."""
    with compiler_lock:
        optimised = schedules.optimise(module, schedules.target_for(host_target.host_target()), **options)
    return {name: rule for name, (rule, _) in schedules.kernels(optimised).items()}


def constant(values: np.ndarray) -> Any:
    """Return an array as a constant of its own dtype."""
    return relax.const(np.ascontiguousarray(values), str(values.dtype))
