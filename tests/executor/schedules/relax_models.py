"""Models written in Relax, for what ONNX cannot say: run as one stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import relax

from pipeline.executor import processor, schedules
from pipeline.executor.build import compile_stage
from pipeline.executor.devices.cpu import CpuRuntime
from pipeline.executor.numerics import EXACT, Numerics
from pipeline.plans import StagePlan, TensorSpec
from pipeline.tvm_access import compiler_lock, quiet
from tests.onnx_models import HOST


def module(inputs: Mapping[str, np.ndarray], make: Callable[..., Any]) -> Any:
    """Return the module whose ``main`` computes what `make` returns for its inputs, each step a variable."""
    builder = relax.BlockBuilder()
    params = [relax.Var(name, relax.TensorType(value.shape, str(value.dtype))) for name, value in inputs.items()]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(make(builder.emit, *params))
        builder.emit_func_output(result)
    return builder.get()


def run(made: Any, inputs: Mapping[str, np.ndarray], cores: int = 1, numerics: Numerics = EXACT) -> np.ndarray:
    """Compile and run a module of one result."""
    runtime, ty = CpuRuntime(HOST), made["main"].ret_ty
    specs = [TensorSpec(name, value.shape, str(value.dtype)) for name, value in inputs.items()]
    result = TensorSpec("result", tuple(int(each) for each in ty.shape), str(ty.dtype))
    stage = StagePlan("test", "cpu", tuple(specs), (result,))
    program = runtime.load(stage, compile_stage(made, HOST, cores, numerics=numerics))
    return np.array(runtime.copy_out(runtime.run(program, [runtime.copy_in(each) for each in inputs.values()])[0]))


def parameters(made: Any, numerics: Numerics) -> list[np.ndarray]:
    """Return what a module keeps of its constants when it is compiled."""
    return list(compile_stage(made, HOST, numerics=numerics).parameters.values())


def kernels(made: Any) -> dict[str, str]:
    """Return a module's kernels, with the rules that write them."""
    with compiler_lock, quiet():
        optimised = schedules.optimise(made, schedules.target_for(processor.host_target()))
    return {name: rule for name, (rule, _) in schedules.kernels(optimised).items()}


def constant(values: np.ndarray) -> Any:
    """Return an array as a constant of its own dtype."""
    return relax.const(np.ascontiguousarray(values), str(values.dtype))
