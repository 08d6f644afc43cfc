"""Symbolic expressions of programs, checked before SymPy evaluates them as Python."""

from __future__ import annotations

import ast

from pipeline.errors import ModelError

# Python's parser takes time and memory that grow with the text; real extents are some dozen characters.
_LENGTH = 10_000
# SymPy computes powers of numbers exactly: 9**9**9 has 370 million digits.
_POWER = 64
# SymPy's and PyTorch's functions of extents, as exported expressions name them.
_FUNCTIONS = frozenset(
    (
        *("Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Max", "Min", "Mod", "PythonMod"),
        *("FloorDiv", "CeilDiv", "CleanDiv", "ModularIndexing", "Where", "CeilToInt", "FloorToInt"),
        *("TruncToInt", "RoundToInt", "TruncToFloat", "RoundDecimal", "ToFloat", "Identity"),
        *("LShift", "RShift", "PowByNatural", "FloatPow", "FloatTrueDiv", "IntTrueDiv"),
        *("IsNonOverlappingAndDenseIndicator", "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "Equality"),
        *("Unequality", "StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan", "And"),
        *("Or", "Not", "Xor", "ITE", "Piecewise", "ExprCondPair", "Tuple", "Abs", "floor", "ceiling", "sqrt", "log"),
        *("exp", "sign"),
    )
)
_POWERS = ("Pow", "PowByNatural", "FloatPow", "LShift")
_NODES = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Name, ast.Load, ast.Constant, ast.Call),
    *(ast.keyword, ast.Tuple, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)


def check_expression(text: str) -> None:
    """Check `text` for arithmetic of symbols and numbers only; `ModelError` if it is anything else."""
    try:
        tree = ast.parse(text, mode="eval") if len(text) <= _LENGTH else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if tree is None or not all(_is_arithmetic(node) for node in ast.walk(tree)):
        raise ModelError(f"has an extent {text[:80]!r}, which is no arithmetic expression")


def _is_arithmetic(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        is_function = isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS
        return is_function and (node.func.id not in _POWERS or _is_small(node.args[-1:]))  # type: ignore[attr-defined]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow | ast.LShift):
        return _is_small([node.right])
    # Two underscores lead to attributes by which code can be reached.
    if isinstance(node, ast.Name):
        return node.id.isidentifier() and "__" not in node.id
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        # The name of a symbol.
        return node.value.isidentifier() and "__" not in node.value
    return isinstance(node, _NODES)


def _is_small(exponents: list[ast.expr]) -> bool:
    """Check exponents for small numbers."""
    numbers = [node.value for exponent in exponents for node in ast.walk(exponent) if isinstance(node, ast.Constant)]
    symbols = any(isinstance(node, ast.BinOp) for exponent in exponents for node in ast.walk(exponent))
    return (
        bool(numbers)
        and not symbols
        and all(isinstance(number, int | float) and number <= _POWER for number in numbers)
    )
