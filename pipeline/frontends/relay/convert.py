"""Tree of a Relay program -> a Relax module with its names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from pipeline.errors import ModelError, near, reason
from pipeline.frontends.relay import syntax
from pipeline.frontends.relay.attributes import Attributes
from pipeline.frontends.relay.builder import MOST_BINDINGS, BindingBuilder, constant_values
from pipeline.frontends.relay.names import ProgramNames
from pipeline.frontends.relay.operators.placement import TABLE as PLACEMENTS
from pipeline.frontends.relay.operators.real_numbers import TABLE as REAL
from pipeline.frontends.relay.operators.table import TABLE
from pipeline.frontends.relay.syntax import RelayFunction, RelayProgram
from pipeline.model.imported_model import Annotation, ImportedModel
from pipeline.model.passes.bindings import constant

# Inlining recurses several frames deep per call, and Python has 1000 of them.
_DEEPEST = 32
"""How far calls of functions may nest."""


@dataclass(frozen=True)
class Closure:
    """A function with the scope of its definition."""

    function: RelayFunction
    scope: Mapping[str, Any]
    name: str


def convert(  # noqa: PLR0913 - all but the first four by keyword
    program: RelayProgram,
    inputs: Mapping[str, Any],
    constants: Mapping[str, np.ndarray],
    name: str,
    *,
    real_arithmetic: bool = False,
    most_operators: int = MOST_BINDINGS,
) -> ImportedModel:
    """Return ``@main`` as Relax, other functions inlined.

    Raises `ModelError` if the program uses what is not supported, or is not consistent. `inputs` are the parameters of
    ``@main`` that are the model's. The program may unfold to `most_operators`.
    """
    main = program.functions["main"]
    table = {**TABLE, **REAL} if real_arithmetic else TABLE
    converter = _ProgramConverter(program, ProgramNames(inputs), table, BindingBuilder(most_operators))
    scope = {**inputs, **{parameter: constant(array) for parameter, array in constants.items()}}
    result = converter.value(main.body, {parameter.name: scope[parameter.name] for parameter in main.parameters})
    # After all bindings: names of the program win over those that outputs without one are given.
    outputs = converter.names.outputs(_flat(program, main, result))
    if not outputs:
        raise program.error(main.position, "'@main' returns an empty tuple, so that there is nothing to compute")
    for var, _ in converter.builder.placements:
        if var not in converter.names.tensors:
            # It needs a name of its own, as what has none becomes a part of what it leads to.
            converter.names.bind("on_device", var)
    body = list(outputs.values())
    result_value = body[0] if len(body) == 1 else relax.Tuple(body)
    builder = relax.BlockBuilder()
    # A program that returns its inputs has no bindings, and then no block.
    block = [relax.DataflowBlock(converter.builder.bindings)] if converter.builder.bindings else []
    result_value = builder.normalize(result_value)
    function = relax.Function(list(inputs.values()), relax.SeqExpr(block, result_value), result_value.ty)
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main"), **converter.builder.kernels})
    names = converter.names
    return ImportedModel(
        name,
        module,
        tuple(outputs),
        names.tensors,
        names.operators,
        names.aliases,
        annotations=tuple(Annotation(names.tensors[var], device) for var, device in converter.builder.placements),
    )


def _flat(program: RelayProgram, main: RelayFunction, result: Any) -> list[Any]:
    """Return the tensors of a result, tuples taken apart."""
    if isinstance(result, tuple):
        return [tensor for part in result for tensor in _flat(program, main, part)]
    if isinstance(result, Closure):
        raise program.error(main.position, "'@main' returns a function, which is not supported")
    return [result]


@dataclass
class _ProgramConverter:
    program: RelayProgram
    names: ProgramNames
    table: Mapping[str, Callable[..., Any]]
    builder: BindingBuilder
    depth: int = 0

    def value(self, expression: syntax.Expression, scope: Mapping[str, Any], prefix: str = "") -> Any:
        """Convert an expression to Relax, a tuple, or a closure."""
        kinds: dict[type, Callable[..., Any]] = {
            syntax.Reference: self._reference,
            syntax.GlobalReference: self._global,
            syntax.OperatorReference: self._bare_operator,
            syntax.Literal: self._literal,
            syntax.Call: self._call,
            syntax.TupleOf: self._tuple,
            syntax.Projection: self._projection,
            syntax.If: self._branch,
            syntax.LetBlock: self._block,
            RelayFunction: self._function,
        }
        return kinds[type(expression)](expression, scope, prefix)

    def _literal(self, expression: syntax.Literal, _: Mapping[str, Any], __: str) -> Any:
        return constant(expression.value)

    def _tuple(self, expression: syntax.TupleOf, scope: Mapping[str, Any], prefix: str) -> Any:
        return tuple(self.value(field, scope, prefix) for field in expression.fields)

    def _reference(self, expression: syntax.Reference, scope: Mapping[str, Any], _: str) -> Any:
        if expression.name not in scope:
            raise self.program.error(
                expression.position, f"{expression.name!r} is not defined here{near(expression.name, scope)}"
            )
        return scope[expression.name]

    def _block(self, block: syntax.LetBlock, enclosing_scope: Mapping[str, Any], prefix: str) -> Any:
        # A copy: names of a block end with it, and closures keep the scope that they were made in.
        scope = dict(enclosing_scope)
        for binding in block.bindings:
            value = self.value(binding.value, scope, prefix)
            self.names.bind(prefix + binding.name, value)
            scope[binding.name] = value
        return self.value(block.result, scope, prefix)

    def _projection(self, expression: syntax.Projection, scope: Mapping[str, Any], prefix: str) -> Any:
        fields = self.value(expression.tuple, scope, prefix)
        if not isinstance(fields, tuple):
            raise self.program.error(expression.position, f"field {expression.index} is taken of what is no tuple")
        if expression.index >= len(fields):
            raise self.program.error(
                expression.position, f"field {expression.index} is taken of a tuple of {len(fields)} fields"
            )
        return fields[expression.index]

    def _branch(self, expression: syntax.If, scope: Mapping[str, Any], prefix: str) -> Any:
        """Return the branch of a constant condition."""
        condition = self.value(expression.condition, scope, prefix)
        try:
            # A condition that depends on values is refused: a pipeline runs the same stages for each frame.
            is_true = bool(constant_values(condition, "the condition of this 'if'").reshape(-1).all())
        except ModelError as error:
            raise self.program.error(expression.position, str(error)) from None
        return self.value(expression.consequence if is_true else expression.alternative, scope, prefix)

    def _function(self, expression: RelayFunction, scope: Mapping[str, Any], _: str) -> Closure:
        return Closure(expression, scope, "fn")

    def _global(self, expression: syntax.GlobalReference, _: Mapping[str, Any], __: str) -> Closure:
        functions = self.program.functions
        if expression.name not in functions:
            hint = near(expression.name, functions)
            raise self.program.error(expression.position, f"there is no function '@{expression.name}'{hint}")
        return Closure(functions[expression.name], {}, expression.name)

    def _bare_operator(self, expression: syntax.OperatorReference, _: Mapping[str, Any], __: str) -> Any:
        raise self.program.error(expression.position, f"the operator {expression.name} stands without operands")

    def _call(self, call: syntax.Call, scope: Mapping[str, Any], prefix: str) -> Any:
        operands = [self.value(argument, scope, prefix) for argument in call.arguments]
        if isinstance(call.function, syntax.OperatorReference):
            return self._operator(call.function.name, call, operands)
        closure = self.value(call.function, scope, prefix)
        if not isinstance(closure, Closure):
            raise self.program.error(call.position, "what is called here is no function")
        return self._inline(closure, operands, call.position)

    def _inline(self, closure: Closure, operands: Iterable[Any], position: int) -> Any:
        parameters = [parameter.name for parameter in closure.function.parameters]
        values = list(operands)
        if len(values) != len(parameters):
            raise self.program.error(
                position, f"the function takes {len(parameters)} arguments, but {len(values)} are given"
            )
        # Recursion is found here only: a function may call itself under a condition that is constant.
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.program.error(position, f"functions call each other more than {_DEEPEST} deep, or without end")
        scope = {**closure.scope, **dict(zip(parameters, values, strict=True))}
        result = self.value(closure.function.body, scope, self.names.prefix(closure.name))
        self.depth -= 1
        return result

    def _operator(self, name: str, call: syntax.Call, operands: list[Any]) -> Any:
        attributes = Attributes(call.attributes)
        try:
            # Bound first, so that a wrong number of operands gets words of its own.
            inspect.signature(self.table[name]).bind(self.builder, attributes, *operands)
            result = self.table[name](self.builder, attributes, *operands)
        except ModelError as error:
            raise self.program.error(call.position, f"{name}: {error}") from None
        except RecursionError:
            raise
        except Exception as error:  # TVM raises whatever its checks meet
            raise self.program.error(call.position, f"{name}: {reason(error)}") from error
        # Annotations decide themselves which of their results is wanted where.
        if name not in PLACEMENTS:
            self.builder.place_by_operands(result, operands)
        # After the conversion, as converters read attributes while they go.
        if unread := attributes.unread():
            raise self.program.error(call.position, f"{name}: the attribute {unread[0]!r} is not supported")
        return result
