"""Expressions of Relay text by recursive descent, loops for long programs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from pipeline.errors import ModelError, near
from pipeline.frontends.relay import syntax
from pipeline.frontends.relay.cursor import Cursor
from pipeline.frontends.relay.lexer import Lexeme
from pipeline.frontends.relay.metadata import Metadata
from pipeline.frontends.relay.scalars import WORDS, scalar, word
from pipeline.frontends.relay.syntax import Expression, RelayFunction
from pipeline.frontends.relay.values import read_attribute, read_meta, read_number, read_type

# From the loosest to the tightest; people write these, TVM prints calls.
_BINARY = (
    {"==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"},
    {"+": "add", "-": "subtract"},
    {"*": "multiply", "/": "divide"},
)
_UNSUPPORTED = ("match", "ref", "ref_read", "ref_write")
_LONGEST_CHAIN = 48
"""Longest chain of operators or calls in one expression; TVM prints one."""


class Expressions:
    """Reads expressions and functions at a cursor."""

    def __init__(self, cursor: Cursor, metadata: Metadata) -> None:
        self._cursor = cursor
        self._meta = partial(read_meta, cursor, metadata)
        self._variable_names: set[str] = set()

    def function(self, position: int) -> RelayFunction:
        """Read a function behind its name."""
        cursor = self._cursor
        # Type parameters: they concern only types, which are inferred anew.
        if cursor.accept("["):
            cursor.read_list("]", cursor.next)
        cursor.expect("(")
        parameters = cursor.read_list(")", self._parameter)
        if cursor.accept("->"):
            read_type(cursor, self._meta)
        return RelayFunction(tuple(parameter for parameter in parameters if parameter), self._braces(), position)

    def _parameter(self) -> syntax.Parameter | None:
        """Read a parameter, skipping a function's attributes in the same list."""
        cursor = self._cursor
        token = cursor.peek()
        # TVM prints a function's attributes, such as global_symbol, behind its parameters.
        if token.kind == "name" and cursor.peek(1).text == "=":
            cursor.expect(token.text)
            cursor.expect("=")
            read_attribute(cursor, self._meta)
            return None
        name = self._declare(cursor.take("variable", "a parameter, such as '%x'"))
        # The virtual device of a parameter, as newer versions print it; placement goes by on_device.
        if cursor.at("{"):
            read_attribute(cursor, self._meta)
        # Relay infers the types of local functions' parameters; only those of main must be stated.
        type_ = read_type(cursor, self._meta) if cursor.accept(":") else syntax.OtherType("no type")
        return syntax.Parameter(name, type_, token.offset)

    def _declare(self, token: Lexeme) -> str:
        # A numbered variable keeps its sign, so that %1 and a variable called 1 in JSON do not meet.
        name = token.text if token.text[1:].isdecimal() else token.text[1:]
        self._variable_names.add(name)
        return name

    def _braces(self) -> Expression:
        self._cursor.expect("{")
        body = self._sequence()
        self._cursor.expect("}")
        return body

    def _sequence(self) -> Expression:
        """Read bindings and the expression behind them."""
        with self._cursor.nesting():
            start = self._cursor.peek().offset
            bindings = []
            while binding := self._binding():
                bindings.append(binding)
            result = self._expression()
        return syntax.LetBlock(tuple(bindings), result, start) if bindings else result

    def _binding(self) -> syntax.LetBinding | None:
        cursor = self._cursor
        token = cursor.peek()
        if not cursor.accept("let") and not (token.kind == "variable" and cursor.peek(1).text == "="):
            return None
        variable = cursor.take("variable", "a variable, such as '%x'")
        if cursor.accept(":"):
            read_type(cursor, self._meta)
        cursor.expect("=", "'=' or ':'")
        value = self._expression()
        cursor.expect(";")
        return syntax.LetBinding(self._declare(variable), value, token.offset)

    def _expression(self, level: int = 0) -> Expression:
        if level == len(_BINARY):
            return self._postfix()
        operand = self._expression(level + 1)
        # A loop, not a recursion: the tree grows to the left, and its depth is what the converter recurses by.
        for _ in range(_LONGEST_CHAIN):
            token = self._cursor.peek()
            if token.kind != "symbol" or token.text not in _BINARY[level]:
                return operand
            operator = syntax.OperatorReference(_BINARY[level][self._cursor.next().text], token.offset)
            operand = syntax.Call(operator, (operand, self._expression(level + 1)), {}, token.offset)
        raise self._too_long()

    def _postfix(self) -> Expression:
        cursor = self._cursor
        start = cursor.peek().offset
        with cursor.nesting():
            value = self._atom()
        for _ in range(_LONGEST_CHAIN):
            if cursor.peek().kind == "projection":
                # Nine digits at most: Python refuses numbers of thousands, and no tuple has as many fields.
                value = syntax.Projection(value, int(cursor.next().text[1:10]), start)
            elif cursor.accept("("):
                value = self._call(value, start)
            else:
                return value
        raise self._too_long()

    def _too_long(self) -> ModelError:
        return self._cursor.error(
            self._cursor.peek().offset, f"more than {_LONGEST_CHAIN} operators in a row; give intermediates names"
        )

    def _call(self, function: Expression, start: int) -> syntax.Call:
        cursor = self._cursor
        attributes: dict[str, object] = {}

        def argument() -> Expression | None:
            # Attributes and operands stand in one list; only an attribute has a name and an equals sign.
            if cursor.peek().kind != "name" or cursor.peek(1).text != "=":
                return self._expression()
            name = cursor.next().text
            cursor.next()
            attributes[name] = read_attribute(cursor, self._meta)
            return None

        with cursor.nesting():
            arguments = cursor.read_list(")", argument)
        return syntax.Call(
            function, tuple(argument for argument in arguments if argument is not None), attributes, start
        )

    def _atom(self) -> Expression:
        token = self._cursor.peek()
        by_text: dict[str, Callable[[Lexeme], Expression]] = {
            "(": self._parenthesis,
            "{": lambda _: self._braces(),
            "if": self._condition,
            "-": self._negative,
            "meta": self._constant,
            "fn": lambda _: self.function(self._cursor.next().offset),
            "let": lambda _: self._sequence(),
        }
        by_kind: dict[str, Callable[[Lexeme], Expression]] = {
            "variable": self._variable,
            "global": self._global,
            "number": self._number,
            "name": self._name,
        }
        # By text first, as keywords are names to the lexer; a string in quotes is neither.
        reader = by_text.get(token.text) if token.kind != "string" else None
        reader = reader or by_kind.get(token.kind)
        if reader is None:
            raise self._cursor.expectation_error("an expression, such as a variable, a call, a constant, or '('")
        return reader(token)

    def _parenthesis(self, token: Lexeme) -> Expression:
        cursor = self._cursor
        cursor.next()
        if cursor.accept(")"):
            return syntax.TupleOf((), token.offset)
        first = self._sequence()
        if cursor.accept(")"):
            return first
        cursor.expect(",", "',' or ')'")
        return syntax.TupleOf((first, *cursor.read_list(")", self._expression)), token.offset)

    def _condition(self, token: Lexeme) -> Expression:
        cursor = self._cursor
        cursor.next()
        cursor.expect("(")
        condition = self._sequence()
        cursor.expect(")")
        consequence = self._braces()
        cursor.expect("else")
        with cursor.nesting():
            # "else if" has no braces of its own.
            alternative = self._condition(cursor.peek()) if cursor.at("if") else self._braces()
        return syntax.If(condition, consequence, alternative, token.offset)

    def _variable(self, token: Lexeme) -> Expression:
        """Read a variable, dotted, or with projections behind dots."""
        self._cursor.next()
        name, indices = token.text if token.text[1:].isdecimal() else token.text[1:], []
        # The lexer cannot tell %x.0, a field of %x, from a variable of that name; the names defined so far can.
        while name not in self._variable_names and name.rpartition(".")[2].isdecimal():
            name, _, index = name.rpartition(".")
            indices.append(int(index[:9]))
        if name not in self._variable_names:
            raise self._cursor.error(
                token.offset, f"{token} is used, but not defined before{near(token.text, self._variable_names)}"
            )
        value: Expression = syntax.Reference(name, token.offset)
        for field_index in reversed(indices):
            value = syntax.Projection(value, field_index, token.offset)
        return value

    def _global(self, token: Lexeme) -> Expression:
        return syntax.GlobalReference(self._cursor.next().text[1:], token.offset)

    def _number(self, token: Lexeme) -> Expression:
        return self._literal(token, *read_number(self._cursor))

    def _negative(self, token: Lexeme) -> Expression:
        self._cursor.next()
        # A literal, as -128 fits int8 where 128 does not.
        if self._cursor.peek().kind == "number":
            value, dtype = read_number(self._cursor)
            return self._literal(token, -value, dtype)
        with self._cursor.nesting():
            return syntax.Call(syntax.OperatorReference("negative", token.offset), (self._postfix(),), {}, token.offset)

    def _literal(self, token: Lexeme, value: float, dtype: str) -> syntax.Literal:
        try:
            return syntax.Literal(scalar(value, dtype), token.offset)
        except ValueError as error:
            raise self._cursor.error(token.offset, str(error)) from None

    def _name(self, token: Lexeme) -> Expression:
        if token.text in _UNSUPPORTED:
            raise self._cursor.error(token.offset, f"{token} is not supported; only dataflow is")
        self._cursor.next()
        # The printer writes infinities and NaN as words, which are float32 where nothing else is said.
        if token.text in WORDS and (value := word(token.text)) is not None:
            return self._literal(token, value, "bool" if isinstance(value, bool) else "float32")
        return syntax.OperatorReference(token.text, token.offset)

    def _constant(self, token: Lexeme) -> Expression:
        value = self._meta()
        if not isinstance(value, np.ndarray):
            raise self._cursor.error(token.offset, "this refers to metadata that is no constant")
        return syntax.Literal(value, token.offset)
