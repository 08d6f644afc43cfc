"""Results in place: a sum takes the memory of an operand that nobody reads any more, which spares half its traffic."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import Call

from pipeline.executor.schedules import anchors
from pipeline.executor.schedules.anchors import Fused
from pipeline.executor.schedules.layout.values import rebuilt


def in_place(module: Any, fits: Callable[[Fused], bool]) -> tuple[Any, dict[str, Fused]]:
    """Let calls of anchors overwrite an operand where that is possible.

    Parameters
    ----------
    module : tvm.IRModule
        A fused stage, its kernels not yet written.
    fits : callable
        Whether a fused function computes each element exactly once.

    Returns
    -------
    module : tvm.IRModule
    chosen : dict of str to Fused
        What each new function, still empty, is to compute.
    """
    main = module["main"]
    changes = _Changes(module, fits)
    blocks = [type(block)([changes.binding(each) for each in block.bindings]) for block in main.body.blocks]
    function = relax.Function(list(main.params), relax.SeqExpr(blocks, main.body.body), main.ret_ty, attrs=main.attrs)
    functions = {**dict(changes.builder.get().functions.items()), module.get_global_var("main"): function}
    return tvm.IRModule(functions), changes.chosen


class _Changes:
    """The calls that are changed, one after the other in the function's order."""

    def __init__(self, module: Any, fits: Callable[[Fused], bool]) -> None:
        bindings = [binding for block in module["main"].body.blocks for binding in block.bindings]
        self._module, self._fits = module, fits
        self._users = _users(module["main"], bindings)
        self._owned = {binding.var for binding in bindings if _is_kernel_call(binding.value)}
        self._position = -1
        self._functions: dict[str, Any] = {}
        self.builder = relax.BlockBuilder(module)
        self.chosen: dict[str, Fused] = {}

    def binding(self, binding: Any) -> Any:
        """Return the binding, its call in place if it may be."""
        self._position += 1
        call = binding.value
        fused = anchors.fused(self._module[call.args[0]]) if _is_kernel_call(call) else None
        if fused is None or (operand := self._operand(fused, call.args[1].fields)) is None:
            return binding
        function = self._function(fused, str(call.args[0].name_hint), operand)
        made = relax.op.call_tir_inplace(function, call.args[1], [operand], binding.var.ty)
        return relax.VarBinding(binding.var, made)

    def _operand(self, fused: Fused, operands: Sequence[Any]) -> int | None:
        """Return which operand is read here last, and by the fused part alone."""
        for index, operand in enumerate(operands):
            if index < len(fused.operands) or operand not in self._owned:
                continue
            last, *others = sorted(self._users[operand], reverse=True)
            if last == self._position not in others and fused.overwrites(index) and self._fits(fused):
                return index
        return None

    def _function(self, fused: Fused, original: str, operand: int) -> Any:
        name = f"{original}_over{operand}"
        if name not in self._functions:
            params, nothing = fused.params[:-1], tirx.Evaluate(tirx.IntImm("int32", 0))
            empty = tirx.PrimFunc(params, nothing).with_attr({"global_symbol": name, "tirx.noalias": True})
            self._functions[name] = self.builder.add_func(empty, name)
            self.chosen[str(self._functions[name].name_hint)] = fused.over(operand)
        return self._functions[name]


def _is_kernel_call(value: Any) -> bool:
    return isinstance(value, Call) and getattr(value.op, "name", "") == "relax.call_tir"


def _users(main: Any, bindings: Sequence[Any]) -> dict[Any, list[int]]:
    """Return where each variable is read; what is not a kernel may pass it on, and counts as the very end."""
    users: dict[Any, list[int]] = {}

    def note(value: Any, *, where: int) -> Any:
        if isinstance(value, relax.Var):
            users.setdefault(value, []).append(where)
        return value

    for position, binding in enumerate(bindings):
        where = position if _is_kernel_call(binding.value) else len(bindings)
        rebuilt(binding.value, functools.partial(note, where=where))
    rebuilt(main.body.body, functools.partial(note, where=len(bindings)))
    return users
