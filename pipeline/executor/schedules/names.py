"""Names: which of the model's operators each kernel of an optimised stage computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import tvm
from tvm import relax
from tvm.ir import Call, SourceName, Span

KEY = "soc.names"
"""Attribute of ``main``: for each of its bindings, the results that it stands for."""


def before_fusion(original: Any) -> Any:
    """Return the pass that notes, at each call, which result of the `original` function it makes.

    A call keeps its span when it is fused, unlike its variable.
    """
    known = {str(binding.var.name) for binding in _bindings(original)}
    results = [str(each.name) for each in results_of(original)]

    @tvm.transform.module_pass(opt_level=0)  # type: ignore[untyped-decorator]
    def run(module: Any, _: Any) -> Any:
        main = module["main"]
        names = {each.var: str(each.var.name) for each in _bindings(main)}
        # TVM gives results that leave the function names of its own; one that is still there only leaves by a copy.
        leaving = dict(zip(results_of(main), results, strict=True))
        names |= {var: name for var, name in leaving.items() if name not in names.values()}
        marked = _marked(main, {var: name for var, name in names.items() if name in known})
        # New calls get their types now: fusion does not find a function any more that gets them meanwhile.
        return relax.transform.Normalize()(_with_main(module, marked))

    return run


def after_fusion() -> Any:
    """Return the pass that gathers what was noted, as an attribute of ``main``."""

    @tvm.transform.module_pass(opt_level=0)  # type: ignore[untyped-decorator]
    def run(module: Any, _: Any) -> Any:
        main = module["main"]
        found = [_noted(module, binding.value) for binding in _bindings(main)]
        return _with_main(module, main.with_attr(KEY, msgspec.json.encode(found).decode()))

    return run


def calls(module: Any) -> list[tuple[str, tuple[str, ...]]] | None:
    """Return, in order, the function that each kernel call of an optimised module names, and the results it makes.

    Results inside a kernel are listed too; there are none where the kernel only changes a layout.  None stands for a
    module that `optimise` left as it was.
    """
    main = module["main"]
    if not main.attrs or KEY not in main.attrs:
        return None
    names = msgspec.json.decode(str(main.attrs[KEY]), type=list[tuple[str, ...]])
    bindings = _bindings(main)
    # Better none than those of another kernel, should a later pass ever add or remove bindings.
    known = names if len(names) == len(bindings) else [()] * len(bindings)
    return [
        (str(binding.value.args[0].name_hint), made)
        for binding, made in zip(bindings, known, strict=True)
        if _is_kernel_call(binding.value)
    ]


def _is_kernel_call(value: Any) -> bool:
    return isinstance(value, Call) and getattr(value.op, "name", "") in ("relax.call_tir", "relax.call_tir_inplace")


def _bindings(function: Any) -> list[Any]:
    return [binding for block in function.body.blocks for binding in block.bindings]


def results_of(function: Any) -> Sequence[Any]:
    """Return the variables that a function returns."""
    body = function.body.body
    return list(body.fields) if isinstance(body, relax.Tuple) else [body]


def _marked(main: Any, names: Mapping[Any, str]) -> Any:
    def marked(binding: Any) -> Any:
        call, name = binding.value, names.get(binding.var)
        if name is None or not isinstance(call, Call):
            return binding
        span = Span(SourceName(name), 0, 0, 0, 0)
        return relax.VarBinding(binding.var, Call(call.op, call.args, call.attrs, call.ty_args, span))

    blocks = [type(block)([marked(each) for each in block.bindings]) for block in main.body.blocks]
    return relax.Function(list(main.params), relax.SeqExpr(blocks, main.body.body), main.ret_ty, attrs=main.attrs)


def _with_main(module: Any, main: Any) -> Any:
    return tvm.IRModule({**dict(module.functions.items()), module.get_global_var("main"): main})


def _noted(module: Any, value: Any) -> list[str]:
    if isinstance(value, Call) and isinstance(value.op, tvm.ir.GlobalVar):
        return [name for inner in _bindings(module[value.op]) for name in _noted(module, inner.value)]
    return [str(value.span.source_name.name)] if isinstance(value, Call) and value.span else []
