"""Search for a function's unbounded indices and divisors from frames."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, TensorLoad, Var, prim
from tvm.sym.analyzer import Analyzer

from pipeline.executor.kernels.tir import checks
from pipeline.executor.kernels.tir.checks import Check, loads, substitute
from pipeline.tvm.objects import mutate

Limits = Mapping[int, tuple[int, int]]
"""Limits of a function's constant parameters by position: smallest and largest element."""

_DIVISIONS = (prim.expr.Div, prim.expr.Mod, prim.expr.FloorDiv, prim.expr.FloorMod)
_LARGEST = {"int32": 2**31 - 1, "int64": 2**63 - 1}
"""Largest numbers. A quotient one larger ends the process. `quotients` widens narrower ones."""


class BoundSearch:
    """Finds a function's unbounded indices and divisors, and adds checks to its body.

    Messages have the description of the computation; `gathers` is True if the processor gathers vectors, as in
    `Microarchitecture`.
    """

    def __init__(self, function: Any, description: str, limits: Limits, *, gathers: bool = False) -> None:
        self.checks: list[Check] = []
        self._description = description
        self._gathers = gathers
        self._inputs = set(function.params) - _stored(function.body)
        # Functions that overwrite an operand have one parameter less.
        self._limits = {
            function.params[position]: pair for position, pair in limits.items() if position < len(function.params)
        }
        self._analyzer = Analyzer()
        self._pending: list[Check] = []
        self._loops: list[Any] = []
        self._guards: list[Any] = []
        # Values of variables, and of the tensors inside of the function that are computed element by element.
        self._values: dict[Any, Any] = {}
        self._elements: dict[Any, tuple[list[Any], Any]] = {}
        self.body = mutate(function.body, [
            (tirx.For, self._enter_loop),
            (s_tir.SBlockRealize, self._enter_block),
            (tirx.DeclBuffer, self._declare),
            (tirx.IfThenElse, self._enter_branches),
            (tirx.Bind, self._bind),
            (prim.expr.Let, self._bind),
            (Call, self._enter_choice),
            (prim.expr.Select, self._enter_choice),
            (tirx.BufferStore, self._check_store),
            (TensorLoad, self._check_load),
            *((kind, self._check_division) for kind in _DIVISIONS),
        ])  # fmt: skip

    def _enter_loop(self, loop: Any, mutator: Any) -> Any:
        self._analyzer.bind(loop.loop_var, tvm.ir.Range.from_min_extent(loop.min, loop.extent))
        # A number of turns may come from a frame as well.
        first, turns = self._expand(loop.min), self._expand(loop.extent)
        self._loops.append(tirx.For(loop.loop_var, first, turns, loop.kind, loop.body))
        result = mutator.default_mutate(loop)
        self._loops.pop()
        return result if self._loops else self._with_checks(result)

    def _with_checks(self, statement: Any) -> Any:
        """Return a top-level statement with the checks inside it."""
        pending, self._pending = self._pending, []
        self.checks += pending
        return checks.guard(statement, pending, gathers=self._gathers)

    def _enter_block(self, realize: Any, mutator: Any) -> Any:
        block = realize.block
        pairs = list(zip([axis.var for axis in block.iter_vars], realize.iter_values, strict=True))
        self._values |= {variable: self._expand(value) for variable, value in pairs}
        self._guards.append(self._expand(realize.predicate))
        result = mutator.default_mutate(realize)
        self._guards.pop()
        store, variables = block.body, [variable for variable, _ in pairs]
        if isinstance(store, tirx.BufferStore) and block.init is None and _are_same(store.indices, variables):
            self._elements[store.buffer] = variables, store.value
        return result

    def _declare(self, declaration: Any, mutator: Any) -> Any:
        # A view of a parameter.
        if declaration.data is not None and _variables(declaration.data) & self._inputs:
            self._inputs.add(declaration.buffer)
        return mutator.default_mutate(declaration)

    def _enter_branches(self, branch: Any, mutator: Any) -> Any:
        # First, since the checks of what is inside ask the condition, which may use an index itself.
        mutator.mutate(branch.condition)
        then_case = self._under(branch.condition, branch.then_case, mutator)
        else_case = branch.else_case
        if else_case is not None:
            else_case = self._under(tirx.Not(branch.condition), else_case, mutator)
        return tirx.IfThenElse(branch.condition, then_case, else_case)

    def _enter_choice(self, choice: Any, mutator: Any) -> Any:
        if isinstance(choice, prim.expr.Select):
            condition, first, second = choice.condition, choice.true_value, choice.false_value
        elif str(getattr(choice.op, "name", "")) == "prim.if_then_else":
            condition, first, second = choice.args
        else:
            return mutator.default_mutate(choice)
        mutator.mutate(condition)
        self._under(condition, first, mutator)
        self._under(tirx.Not(condition), second, mutator)
        return choice

    def _under(self, condition: Any, node: Any, mutator: Any) -> Any:
        self._guards.append(self._expand(condition))
        result = mutator.mutate(node)
        self._guards.pop()
        return result

    def _bind(self, binding: Any, mutator: Any) -> Any:
        mutator.mutate(binding.value)
        self._values[binding.var] = self._expand(binding.value)
        if not isinstance(binding, tirx.Bind):
            mutator.mutate(binding.body)
        return binding

    def _check_store(self, store: Any, mutator: Any) -> Any:
        mutator.default_mutate(store)
        self._check_indices(store.buffer, store.indices)
        return store if self._loops else self._with_checks(store)

    def _check_load(self, load: Any, mutator: Any) -> Any:
        mutator.default_mutate(load)
        self._check_indices(load.source, load.indices)
        return load

    def _check_indices(self, source: Any, indices: Any) -> None:
        for axis, (position, extent) in enumerate(zip(indices, source.shape, strict=True)):
            index = self._expand(position)
            # What follows from loops alone is right, or TVM is wrong; no vector of ours comes from a frame.
            if not loads(index) or isinstance(index, tirx.Ramp | tirx.Broadcast):
                continue
            if not self._proves(tirx.And(index >= 0, index < extent)):
                extent_text = int(extent) if isinstance(extent, tirx.IntImm) else extent
                message = f"{self._description}: an index is outside of the {extent_text} places of axis {axis}"
                self._require(*_unsigned(index, extent), "IndexError", message)

    def _check_division(self, division: Any, mutator: Any) -> Any:
        mutator.default_mutate(division)
        dtype = str(division.ty.dtype)
        if not dtype.startswith(("int", "uint")) or isinstance(division.b, tirx.IntImm):
            return division
        dividend, divisor = self._expand(division.a), self._expand(division.b)
        failures = [("is divided by zero", 0, tirx.const(True, "bool"))]
        if dtype in _LARGEST:
            # By its bits: TVM holds that no number of 32 bits is the smallest one.
            other_bits = tirx.bitwise_and(dividend, tirx.const(_LARGEST[dtype], dtype))
            smallest = tirx.And(dividend < 0, tirx.EQ(other_bits, tirx.const(0, dtype)))
            failures.append(("has no quotient", -1, smallest))
        for description, number, condition in failures:
            is_number = tirx.EQ(divisor, tirx.const(number, dtype))
            if loads(divisor) and not self._proves(tirx.Not(is_number)):
                failure, message = tirx.And(is_number, condition), f"{self._description}: a whole number {description}"
                self._require(failure.astype("uint32"), tirx.const(1, "uint32"), "ValueError", message)
        return division

    def _expand(self, expression: Any) -> Any:
        """Expand an expression to the function's parameters, where possible."""

        def element(load: Any, mutator: Any) -> Any:
            indices = [mutator.mutate(index) for index in load.indices]
            if load.source not in self._elements:
                return tirx.BufferLoad(load.source, indices)
            variables, value = self._elements[load.source]
            return mutator.mutate(substitute(value, dict(zip(variables, indices, strict=True))))

        return mutate(expression, [(TensorLoad, element), (Var, lambda var, _: self._values.get(var, var))])

    def _require(self, value: Any, limit: Any, kind: str, message: str) -> None:
        for condition in reversed(self._guards):
            if not self._analyzer.can_prove(condition):
                value = tirx.if_then_else(condition, value, tirx.const(0, str(value.ty.dtype)))
        loops = self._loops_of(value)
        # What a function computes itself, such as the middle of a search, is right, or TVM is wrong.
        if not {load.source for load in loads(value)} <= self._inputs or any(map(_is_empty, loops)):
            return
        if not any(tvm_ffi.structural_equal(value, check.value) for check in self._pending):
            self._pending.append(Check(value, limit, loops, kind, message))

    def _proves(self, condition: Any) -> bool:
        constants: dict[Any, Any] = {}

        def bounded(load: Any, _: Any) -> Any:
            if load.source not in self._limits:
                return load
            low, high = self._limits[load.source]
            if load.source not in constants:
                constants[load.source] = Var("constant", load.ty)
                self._analyzer.bind(constants[load.source], tvm.ir.Range.from_min_extent(low, high - low + 1))
            return constants[load.source]

        def with_constants(expression: Any) -> Any:
            return mutate(expression, [(TensorLoad, bounded)])

        with contextlib.ExitStack() as scopes:
            for condition_around in self._guards:
                scopes.enter_context(self._analyzer.constraint_scope(with_constants(condition_around)))
            return bool(self._analyzer.can_prove(with_constants(condition)))

    def _loops_of(self, value: Any) -> tuple[Any, ...]:
        variables = _variables(value)
        loops: list[Any] = []
        for loop in reversed(self._loops):
            if loop.loop_var in variables:
                loops.insert(0, loop)
                variables |= _variables(loop.min) | _variables(loop.extent)
        return tuple(loops)


def _stored(node: Any) -> set[Any]:
    """Return the written tensors."""
    tensors: set[Any] = set()

    def look(store: Any, _: Any) -> Any:
        tensors.add(store.buffer)
        return store

    mutate(node, [(tirx.BufferStore, look)])
    return tensors


def _variables(expression: Any) -> set[Any]:
    variables: set[Any] = set()

    def look(variable: Any, _: Any) -> Any:
        variables.add(variable)
        return variable

    mutate(expression, [(Var, look)])
    return variables


def _are_same(indices: Any, variables: list[Any]) -> bool:
    return len(indices) == len(variables) and all(a.same_as(b) for a, b in zip(indices, variables, strict=True))


def _unsigned(index: Any, extent: Any) -> tuple[Any, Any]:
    """Return index and extent in an unsigned dtype, where negatives are large."""
    width = 32 if isinstance(extent, tirx.IntImm) and "64" not in str(index.ty.dtype) else 64
    return index.astype(f"int{width}").astype(f"uint{width}"), extent.astype(f"uint{width}")


def _is_empty(loop: Any) -> bool:
    return isinstance(loop.extent, tirx.IntImm) and int(loop.extent) == 0
