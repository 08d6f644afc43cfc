"""Which operators of a program cannot be converted; all of them, before the first one is."""

from __future__ import annotations

from pipeline.split.frontends.relay import syntax
from pipeline.split.frontends.relay.operators.table import TABLE
from pipeline.split.frontends.relay.syntax import Program


def unsupported(program: Program) -> list[str]:
    """Return one text per operator that cannot be converted, with the places where ``@main`` comes to it."""
    found: dict[str, list[int]] = {}
    seen: set[str] = set()
    waiting: list[syntax.Expression] = [program.functions["main"]]
    while waiting:
        expression = waiting.pop()
        if isinstance(expression, syntax.OperatorReference) and expression.name not in TABLE:
            found.setdefault(expression.name, []).append(expression.place)
        if isinstance(expression, syntax.GlobalReference) and expression.name not in seen:
            seen.add(expression.name)
            waiting += [program.functions[expression.name]] if expression.name in program.functions else []
        waiting += syntax.children(expression)
    return [
        f"{name} ({_places(program, places)})" for name, places in sorted(found.items(), key=lambda each: min(each[1]))
    ]


def _places(program: Program, places: list[int]) -> str:
    first = program.locate(min(places))
    return first if len(places) == 1 else f"{first}, and {len(places) - 1} more"
