"""In-place results: sums overwrite a dead operand, halving its traffic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import Call

from pipeline.executor.kernels import anchor
from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.model.passes.bindings import operands


def overwrite_operands(module: Any, fits: Callable[[FusedGroup], bool]) -> tuple[Any, dict[str, FusedGroup]]:
    """Let kernel calls of a fused stage, its kernels not yet written, overwrite an operand where possible.

    `fits` tests whether a group computes each element exactly once. Also returns the groups to be computed by each new
    function, which is still empty.
    """
    main = module["main"]
    calls = _InPlaceCalls(module, fits)
    blocks = [type(block)([calls.binding(binding) for binding in block.bindings]) for block in main.body.blocks]
    function = relax.Function(list(main.params), relax.SeqExpr(blocks, main.body.body), main.ret_ty, attrs=main.attrs)
    functions = {**dict(calls.builder.get().functions.items()), module.get_global_var("main"): function}
    return tvm.IRModule(functions), calls.groups


class _InPlaceCalls:
    """In-place calls, in the function's order."""

    def __init__(self, module: Any, fits: Callable[[FusedGroup], bool]) -> None:
        bindings = [binding for block in module["main"].body.blocks for binding in block.bindings]
        self._module, self._fits = module, fits
        self._users = _users(module["main"], bindings)
        self._kernel_results = {binding.var for binding in bindings if _is_kernel_call(binding.value)}
        self._position = -1
        self._functions: dict[str, Any] = {}
        self.builder = relax.BlockBuilder(module)
        self.groups: dict[str, FusedGroup] = {}

    def binding(self, binding: Any) -> Any:
        """Return the binding, in place where possible."""
        self._position += 1
        call = binding.value
        group = anchor.group_of(self._module[call.args[0]]) if _is_kernel_call(call) else None
        if group is None or (operand := self._operand(group, call.args[1].fields)) is None:
            return binding
        function = self._function(group, str(call.args[0].name_hint), operand)
        in_place = relax.op.call_tir_inplace(function, call.args[1], [operand], binding.var.ty)
        return relax.VarBinding(binding.var, in_place)

    def _operand(self, group: FusedGroup, operands: Sequence[Any]) -> int | None:
        """Return an operand last read here, only by the fused part."""
        for index, operand in enumerate(operands):
            # A placeholder reads its own operands around each element; a stage's inputs and constants belong to others.
            if index < len(group.operands) or operand not in self._kernel_results:
                continue
            # Read by this call alone from here on, and by it once.
            last, *earlier = sorted(self._users[operand], reverse=True)
            if last == self._position not in earlier and group.overwrites(index) and self._fits(group):
                return index
        return None

    def _function(self, group: FusedGroup, original: str, operand: int) -> Any:
        name = f"{original}_over{operand}"
        # Equal calls share one function, as they do elsewhere.
        if name not in self._functions:
            params, no_statement = group.params[:-1], tirx.Evaluate(tirx.IntImm("int32", 0))
            empty_function = tirx.PrimFunc(params, no_statement).with_attr(
                {"global_symbol": name, "tirx.noalias": True}
            )
            self._functions[name] = self.builder.add_func(empty_function, name)
            self.groups[str(self._functions[name].name_hint)] = group.over(operand)
        return self._functions[name]


def _is_kernel_call(value: Any) -> bool:
    return isinstance(value, Call) and getattr(value.op, "name", "") == "relax.call_tir"


def _users(main: Any, bindings: Sequence[Any]) -> dict[Any, list[int]]:
    """Return the readers per variable; a non-kernel reader counts as the end."""
    users: dict[Any, list[int]] = {}
    end = len(bindings)
    readers = [position if _is_kernel_call(binding.value) else end for position, binding in enumerate(bindings)]
    values = [*(binding.value for binding in bindings), main.body.body]
    for value, reader in zip(values, [*readers, end], strict=True):
        for operand in operands(value):
            if isinstance(operand, relax.Var):
                users.setdefault(operand, []).append(reader)
    return users
