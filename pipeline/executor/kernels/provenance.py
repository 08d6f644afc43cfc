"""Provenance: functions' kernels and the model operators behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import tvm
from tvm import relax
from tvm.ir import Call, SourceName, Span

_RESULTS = "soc.names"
"""Attribute of ``main``: the model's results per binding."""

_ERRORS = "soc.errors"
"""Attribute of ``main``: bounds on the errors of results, as JSON."""

_KERNEL = "soc.kernel"
"""Attribute of functions ready for TVM's code generator: the kernel, and its operations."""

GENERAL, TUNED = "general", "tuned"
"""Names in place of a kernel's: the general schedule, and a tuned one."""


def mark(function: Any, name: str, kernel: str, operations: int = 0) -> Any:
    """Annotate a function with module name, kernel, and known operations."""
    return function.with_attr({"global_symbol": name, _KERNEL: f"{kernel} {operations}"})


def kernels(module: Any) -> dict[str, tuple[str, int]]:
    """Return kernel and floating-point operations per optimised function.

    ``"general"`` stands for everything without a kernel of its own, whose operations are not counted.
    """
    marks = {
        str(variable.name_hint): str(function.attrs[_KERNEL]).partition(" ")
        for variable, function in module.functions.items()
        if function.attrs and _KERNEL in function.attrs
    }
    return {name: (kernel, int(operations)) for name, (kernel, _, operations) in marks.items()}


def before_fusion(original: Any) -> Any:
    """Return the pass annotating calls with the `original` function's results.

    A call keeps its span when it is fused, unlike its variable.
    """
    model_names = {str(binding.var.name) for binding in _bindings(original)}
    results = [str(variable.name) for variable in results_of(original)]

    @tvm.transform.module_pass(opt_level=0)  # type: ignore[untyped-decorator]
    def run(module: Any, _: Any) -> Any:
        main = module["main"]
        names = {binding.var: str(binding.var.name) for binding in _bindings(main)}
        # TVM gives results that leave the function names of its own; one that is still there only leaves by a copy.
        outputs = dict(zip(results_of(main), results, strict=True))
        names |= {var: name for var, name in outputs.items() if name not in names.values()}
        with_spans = _with_spans(main, {var: name for var, name in names.items() if name in model_names})
        # New calls get their types now: fusion does not find a function any more that gets them meanwhile.
        return relax.transform.Normalize()(_with_main(module, with_spans))

    return run


def after_fusion() -> Any:
    """Return the pass collecting annotations in an attribute of ``main``."""

    @tvm.transform.module_pass(opt_level=0)  # type: ignore[untyped-decorator]
    def run(module: Any, _: Any) -> Any:
        main = module["main"]
        results = [_spans(module, binding.value) for binding in _bindings(main)]
        return _with_main(module, main.with_attr(_RESULTS, msgspec.json.encode(results).decode()))

    return run


def calls(module: Any) -> list[tuple[str, tuple[str, ...]]] | None:
    """Return every kernel call's function and results, in order.

    Results inside a kernel are listed too; there are none where the kernel only changes a layout.  None stands for a
    module that `optimise` left as it was.
    """
    main = module["main"]
    if not main.attrs or _RESULTS not in main.attrs:
        return None
    names = msgspec.json.decode(str(main.attrs[_RESULTS]), type=list[tuple[str, ...]])
    bindings = _bindings(main)
    # Better none than those of another kernel, should a later pass ever add or remove bindings.
    results = names if len(names) == len(bindings) else [()] * len(bindings)
    return [
        (_function_name(binding.value.args[0]), call_results)
        for binding, call_results in zip(bindings, results, strict=True)
        if _is_kernel_call(binding.value)
    ]


def with_errors(function: Any, bounds: Mapping[str, float]) -> Any:
    """Return a function with bounds on the errors of some results."""
    return function.with_attr(_ERRORS, msgspec.json.encode(bounds).decode())


def errors(module: Any) -> dict[str, float]:
    """Return the bounds of `with_errors`."""
    attributes = module["main"].attrs or {}
    return msgspec.json.decode(str(attributes[_ERRORS]), type=dict[str, float]) if _ERRORS in attributes else {}


def result_names(module: Any) -> dict[str, str]:
    """Return the model results per function, for messages."""
    names: dict[str, list[str]] = {}
    for function, results in calls(module) or ():
        names.setdefault(function, []).extend(map(repr, results))
    return {function: " or ".join(results) for function, results in names.items()}


def _is_kernel_call(value: Any) -> bool:
    names = ("relax.call_tir", "relax.call_tir_inplace", "relax.call_dps_packed")
    return isinstance(value, Call) and getattr(value.op, "name", "") in names


def _function_name(function: Any) -> str:
    """Return the name of a module or process function."""
    return str(function.global_symbol if isinstance(function, relax.ExternFunc) else function.name_hint)


def _bindings(function: Any) -> list[Any]:
    return [binding for block in function.body.blocks for binding in block.bindings]


def results_of(function: Any) -> Sequence[Any]:
    """Return the variables of a function's result."""
    body = function.body.body
    return list(body.fields) if isinstance(body, relax.Tuple) else [body]


def _with_spans(main: Any, names: Mapping[Any, str]) -> Any:
    def with_span(binding: Any) -> Any:
        call, name = binding.value, names.get(binding.var)
        if name is None or not isinstance(call, Call):
            return binding
        # Fusion keeps the span of a call, whatever it says.
        span = Span(SourceName(name), 0, 0, 0, 0)
        return relax.VarBinding(binding.var, Call(call.op, call.args, call.attrs, call.ty_args, span))

    blocks = [type(block)([with_span(binding) for binding in block.bindings]) for block in main.body.blocks]
    return relax.Function(list(main.params), relax.SeqExpr(blocks, main.body.body), main.ret_ty, attrs=main.attrs)


def _with_main(module: Any, main: Any) -> Any:
    return tvm.IRModule({**dict(module.functions.items()), module.get_global_var("main"): main})


def _spans(module: Any, value: Any) -> list[str]:
    if isinstance(value, Call) and isinstance(value.op, tvm.ir.GlobalVar):
        return [name for inner in _bindings(module[value.op]) for name in _spans(module, inner.value)]
    return [str(value.span.source_name.name)] if isinstance(value, Call) and value.span else []
