"""The tree of a Relay program -> a Relax module with the program's names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax

from pipeline.errors import ModelError, near
from pipeline.split.frontends.imported import Imported
from pipeline.split.frontends.relay import syntax
from pipeline.split.frontends.relay.attributes import Attributes
from pipeline.split.frontends.relay.builder import Builder, known
from pipeline.split.frontends.relay.names import Names
from pipeline.split.frontends.relay.operators.real import TABLE as REAL
from pipeline.split.frontends.relay.operators.table import TABLE
from pipeline.split.frontends.relay.syntax import Function, Program
from pipeline.split.lines import constant

_DEEPEST = 32
"""How far calls of functions may nest."""


@dataclass(frozen=True)
class Closure:
    """A function, and what its body sees of the place where it stands."""

    function: Function
    scope: Mapping[str, Any]
    name: str


def convert(
    program: Program,
    inputs: Mapping[str, Any],
    constants: Mapping[str, np.ndarray],
    name: str,
    *,
    real: bool = False,
) -> Imported:
    """Return ``@main`` as Relax, other functions inlined.

    Parameters
    ----------
    program : Program
    inputs : mapping of str to relax.Var
        The parameters of ``@main`` that are inputs of the model.
    constants : mapping of str to numpy.ndarray
        The other ones.
    name : str
        Of the model.
    real : bool
        Whether quantised operators compute in real numbers between bytes, instead of in whole ones.

    Raises
    ------
    ModelError
        If the program uses what is not supported, or is not consistent.
    """
    main = program.functions["main"]
    converter = _Converter(program, Names(inputs), {**TABLE, **REAL} if real else TABLE)
    scope = {**inputs, **{each: constant(array) for each, array in constants.items()}}
    result = converter.value(main.body, {each.name: scope[each.name] for each in main.parameters})
    outputs = converter.names.outputs(_flat(program, main, result))
    body = list(outputs.values())
    whole = body[0] if len(body) == 1 else relax.Tuple(body)
    builder = relax.BlockBuilder()
    block = [relax.DataflowBlock(converter.builder.bindings)] if converter.builder.bindings else []
    whole = builder.normalize(whole)
    function = relax.Function(list(inputs.values()), relax.SeqExpr(block, whole), whole.ty)
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    found = converter.names
    return Imported(name, module, tuple(outputs), found.tensors, found.operators, found.aliases)


def _flat(program: Program, main: Function, result: Any) -> list[Any]:
    """Return the tensors of a result, tuples taken apart."""
    if isinstance(result, tuple):
        return [each for part in result for each in _flat(program, main, part)]
    if isinstance(result, Closure):
        raise program.error(main.place, "'@main' returns a function, which is not supported")
    return [result]


@dataclass
class _Converter:
    program: Program
    names: Names
    table: Mapping[str, Callable[..., Any]]
    builder: Builder = field(default_factory=Builder)
    depth: int = 0

    def value(self, expression: syntax.Expression, scope: Mapping[str, Any], prefix: str = "") -> Any:
        """Return what an expression stands for: a Relax expression, a tuple of these, or a closure."""
        kinds: dict[type, Callable[..., Any]] = {
            syntax.Reference: self._reference,
            syntax.GlobalReference: self._global,
            syntax.OperatorReference: self._bare_operator,
            syntax.Literal: self._literal,
            syntax.Call: self._call,
            syntax.TupleOf: self._tuple,
            syntax.Projection: self._projection,
            syntax.If: self._branch,
            syntax.Block: self._block,
            Function: self._function,
        }
        return kinds[type(expression)](expression, scope, prefix)

    def _literal(self, expression: syntax.Literal, _: Mapping[str, Any], __: str) -> Any:
        return constant(expression.value)

    def _tuple(self, expression: syntax.TupleOf, scope: Mapping[str, Any], prefix: str) -> Any:
        return tuple(self.value(each, scope, prefix) for each in expression.fields)

    def _reference(self, expression: syntax.Reference, scope: Mapping[str, Any], _: str) -> Any:
        if expression.name not in scope:
            raise self.program.error(
                expression.place, f"{expression.name!r} is not defined here{near(expression.name, scope)}"
            )
        return scope[expression.name]

    def _block(self, block: syntax.Block, outer: Mapping[str, Any], prefix: str) -> Any:
        scope = dict(outer)
        for binding in block.bindings:
            value = self.value(binding.value, scope, prefix)
            self.names.bind(prefix + binding.name, value)
            scope[binding.name] = value
        return self.value(block.result, scope, prefix)

    def _projection(self, expression: syntax.Projection, scope: Mapping[str, Any], prefix: str) -> Any:
        whole = self.value(expression.tuple, scope, prefix)
        if not isinstance(whole, tuple):
            raise self.program.error(expression.place, f"field {expression.index} is taken of what is no tuple")
        if expression.index >= len(whole):
            raise self.program.error(
                expression.place, f"field {expression.index} is taken of a tuple of {len(whole)} fields"
            )
        return whole[expression.index]

    def _branch(self, expression: syntax.If, scope: Mapping[str, Any], prefix: str) -> Any:
        """Return the branch that a constant chooses."""
        condition = self.value(expression.condition, scope, prefix)
        try:
            chosen = bool(known(condition, "the condition of this 'if'").reshape(-1).all())
        except ModelError as error:
            raise self.program.error(expression.place, str(error)) from None
        return self.value(expression.then if chosen else expression.otherwise, scope, prefix)

    def _function(self, expression: Function, scope: Mapping[str, Any], _: str) -> Closure:
        return Closure(expression, scope, "fn")

    def _global(self, expression: syntax.GlobalReference, _: Mapping[str, Any], __: str) -> Closure:
        functions = self.program.functions
        if expression.name not in functions:
            hint = near(expression.name, functions)
            raise self.program.error(expression.place, f"there is no function '@{expression.name}'{hint}")
        return Closure(functions[expression.name], {}, expression.name)

    def _bare_operator(self, expression: syntax.OperatorReference, _: Mapping[str, Any], __: str) -> Any:
        raise self.program.error(expression.place, f"the operator {expression.name} stands without operands")

    def _call(self, call: syntax.Call, scope: Mapping[str, Any], prefix: str) -> Any:
        operands = [self.value(each, scope, prefix) for each in call.arguments]
        if isinstance(call.function, syntax.OperatorReference):
            return self._operator(call.function.name, call, operands)
        closure = self.value(call.function, scope, prefix)
        if not isinstance(closure, Closure):
            raise self.program.error(call.place, "what is called here is no function")
        return self._inlined(closure, operands, call.place)

    def _inlined(self, closure: Closure, operands: Iterable[Any], place: int) -> Any:
        parameters = [each.name for each in closure.function.parameters]
        values = list(operands)
        if len(values) != len(parameters):
            raise self.program.error(
                place, f"the function takes {len(parameters)} arguments, but {len(values)} are given"
            )
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.program.error(place, f"functions call each other more than {_DEEPEST} deep, or without end")
        scope = {**closure.scope, **dict(zip(parameters, values, strict=True))}
        result = self.value(closure.function.body, scope, self.names.prefix(closure.name))
        self.depth -= 1
        return result

    def _operator(self, name: str, call: syntax.Call, operands: list[Any]) -> Any:
        attributes = Attributes(call.attributes)
        try:
            inspect.signature(self.table[name]).bind(self.builder, attributes, *operands)
            result = self.table[name](self.builder, attributes, *operands)
        except ModelError as error:
            raise self.program.error(call.place, f"{name}: {error}") from None
        except RecursionError:
            raise
        except Exception as error:  # TVM raises whatever its checks meet
            reason = str(error).strip().splitlines()
            raise self.program.error(call.place, f"{name}: {reason[-1] if reason else type(error).__name__}") from error
        if unread := attributes.unread():
            raise self.program.error(call.place, f"{name}: the attribute {unread[0]!r} is not supported")
        return result
