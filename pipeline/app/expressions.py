"""Expressions: conditions for frames (``when``) and boxes (``where``).

Python's grammar of comparisons, ``and``, ``or``, ``not``, numbers, texts, fields and calls, read by its parser and
never run as code.  Conditions for boxes are computed for all boxes of a frame at once.  All parts are computed for each
frame, so that functions with a memory, such as ``for_frames``, see them all.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.app.conditions import FRAME_FUNCTIONS, ROW_FUNCTIONS, SELECTIONS
from pipeline.app.scopes import ROW_FIELDS, Evaluation, Points, truth
from pipeline.errors import AppError, near

PREVIOUS = "previous"
"""Function of a node: what it found in the frame before."""

LONGEST = 1000
"""Characters of an expression, at most."""

Step = Callable[[Evaluation], Any]

_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: np.isin,
    ast.NotIn: lambda value, values: ~np.isin(value, values),
}


@dataclass(frozen=True)
class Expression:
    """A condition that was parsed."""

    text: str
    reads: frozenset[str]
    """Nodes that it names."""
    previous: frozenset[str]
    """Nodes whose results of the frame before it asks for."""
    boxes: frozenset[str]
    """Nodes whose boxes it counts."""
    _step: Step

    @staticmethod
    def parse(
        text: str,
        *,
        zones: Mapping[str, Points] | None = None,
        lines: Mapping[str, Points] | None = None,
        names: Sequence[str] = (),
        rows: bool = False,
    ) -> Expression:
        """Parse a condition for frames, or for boxes with `rows`, that may name some nodes.

        Raises `AppError` if it is no such condition, or names something unknown.
        """
        if len(text) > LONGEST:
            raise AppError(f"the condition has {len(text)} characters; at most {LONGEST} are read")
        try:
            # Names of nodes may have dashes, which the grammar takes for a minus.
            tree = ast.parse(_with_underscores(text, names).strip(), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            raise AppError(f"{text!r} is no condition: {getattr(error, 'msg', error)}") from None
        parser = _Parser(zones or {}, lines or {}, {name.replace("-", "_"): name for name in names})
        step = parser.parse(tree, rows=rows)
        nodes = frozenset(parser.reads), frozenset(parser.previous), frozenset(parser.boxes)
        return Expression(text, *nodes, step)

    def evaluate(self, evaluation: Evaluation) -> Any:
        """Return a truth value, or one per box."""
        return self._step(evaluation)


class _Parser:
    """Turns a syntax tree into steps."""

    def __init__(self, zones: Mapping[str, Points], lines: Mapping[str, Points], nodes: Mapping[str, str]) -> None:
        self._shapes = {"zone": zones, "line": lines}
        self._nodes = nodes
        self.reads: set[str] = set()
        self.previous: set[str] = set()
        self.boxes: set[str] = set()

    def parse(self, tree: ast.expr, *, rows: bool) -> Step:
        """Return the step of an expression."""
        match tree:
            case ast.BoolOp(op=op, values=values):
                combine = np.logical_and if isinstance(op, ast.And) else np.logical_or
                parts = [self.parse(value, rows=rows) for value in values]
                return lambda evaluation: combine.reduce(np.broadcast_arrays(*[part(evaluation) for part in parts]))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                part = self.parse(operand, rows=rows)
                return lambda evaluation: np.logical_not(part(evaluation))
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._comparison([left, *comparators], ops, rows=rows)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                return self._call(name, arguments, rows=rows)
            case _:
                return self._value(tree, rows=rows)

    def _value(self, tree: ast.expr, *, rows: bool) -> Step:
        """Return the step of a number, text, list of these, or field."""
        try:
            constant = ast.literal_eval(tree)
        except (ValueError, TypeError):
            constant = None
        if isinstance(constant, (bool, int, float, str)):
            return lambda _: constant
        if isinstance(constant, (list, tuple)) and all(isinstance(item, (int, float, str)) for item in constant):
            items = list(constant)
            return lambda _: items
        match tree:
            case ast.Name(id=name) if rows:
                return self._row_field(name)
            case ast.Name(id=name):
                node = self._node(name)
                return lambda evaluation: evaluation.truth(node)
            case ast.Attribute(value=ast.Name(id=name), attr=field):
                node = self._node(name)
                if rows:
                    return lambda evaluation: evaluation.attribute(node, field)
                return lambda evaluation: evaluation.best(node, field)
        hint = "; == compares" if isinstance(tree, ast.Call) and tree.keywords else ""
        raise AppError(f"{ast.unparse(tree)!r} cannot be part of a condition{hint}")

    def _row_field(self, name: str) -> Step:
        if name not in ROW_FIELDS:
            hint = near(name, tuple(ROW_FIELDS)) or "; a text is written in quotes"
            raise AppError(f"boxes have no {name!r}; there are {', '.join(ROW_FIELDS)}{hint}")
        return lambda evaluation: evaluation.rows.field(name)

    def _node(self, name: str) -> str:
        if name not in self._nodes:
            of_boxes = "; that is a field of boxes, as in any(NODE, score > 0.5)" if name in ROW_FIELDS else ""
            raise AppError(f"there is no node {name!r}{of_boxes or near(name, tuple(self._nodes))}")
        self.reads.add(self._nodes[name])
        return self._nodes[name]

    def _comparison(self, operands: Sequence[ast.expr], operators: Sequence[ast.cmpop], *, rows: bool) -> Step:
        parts = [self.parse(operand, rows=rows) for operand in operands]
        unknown = next((op for op in operators if type(op) not in _COMPARISONS), None)
        if unknown is not None:
            raise AppError("conditions compare by ==, !=, <, <=, >, >=, in and not in")
        compare = [_COMPARISONS[type(op)] for op in operators]

        def step(evaluation: Evaluation) -> Any:
            values = [part(evaluation) for part in parts]
            pairs = zip(compare, values[:-1], values[1:], strict=True)
            return np.logical_and.reduce(np.broadcast_arrays(*[function(*pair) for function, *pair in pairs]))

        return step

    def _call(self, name: str, arguments: Sequence[ast.expr], *, rows: bool) -> Step:
        functions = ROW_FUNCTIONS if rows else FRAME_FUNCTIONS
        if name in SELECTIONS and not rows:
            return self._selection(name, arguments)
        if name == PREVIOUS and not rows:
            return self._previous(arguments)
        if name not in functions:
            known = (*functions, *(() if rows else (*SELECTIONS, PREVIOUS)))
            raise AppError(f"there is no function {name!r}; there are {', '.join(known)}{near(name, known)}")
        function, key = functions[name], object()
        least, most = function.arguments
        if not least <= len(arguments) <= most:
            count = str(least) if least == most else f"{least} to {most}"
            raise AppError(f"{name} takes {count} arguments, and not {len(arguments)}")
        parts = [
            self._shape(function.shape, argument)
            if position == 0 and function.shape
            else self.parse(argument, rows=rows)
            for position, argument in enumerate(arguments)
        ]
        return lambda evaluation: function.compute(
            evaluation, evaluation.memory(key), *[part(evaluation) for part in parts]
        )

    def _selection(self, name: str, arguments: Sequence[ast.expr]) -> Step:
        """Return the step of ``count(people, score > 0.5)``: a node, and a condition for its boxes."""
        if not (1 <= len(arguments) <= 2 and isinstance(arguments[0], ast.Name)):
            raise AppError(f"{name} takes a node, and maybe a condition for its boxes")
        node = self._node(arguments[0].id)
        self.boxes.add(node)
        condition = self.parse(arguments[1], rows=True) if len(arguments) == 2 else None
        choose = SELECTIONS[name]
        return lambda evaluation: choose(evaluation.select(node, condition))

    def _previous(self, arguments: Sequence[ast.expr]) -> Step:
        """Return the step of ``previous(hands)``: what a node found in the frame before."""
        if len(arguments) != 1 or not isinstance(arguments[0], ast.Name):
            raise AppError(f"{PREVIOUS} takes a node")
        node = self._node(arguments[0].id)
        self.previous.add(node)
        return lambda evaluation: truth(evaluation.frame.previous.get(node))

    def _shape(self, kind: str, tree: ast.expr) -> Step:
        shapes = self._shapes[kind]
        name = str(tree.value) if isinstance(tree, ast.Constant) else ast.unparse(tree)
        if name not in shapes:
            raise AppError(f"there is no {kind} {name!r}{near(name, tuple(shapes))}")
        points = np.asarray(shapes[name], np.float64)
        return lambda evaluation: evaluation.in_pixels(points)


def _with_underscores(text: str, names: Sequence[str]) -> str:
    for name in sorted((name for name in names if "-" in name), key=len, reverse=True):
        text = text.replace(name, name.replace("-", "_"))
    return text
