"""Descriptions of exported programs, checked: PyTorch makes code of them.

PyTorch evaluates each expression, imports the classes that are named in the structure of inputs and outputs, takes
operators by their names from Python modules, and writes the names of values into Python code that it executes.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from torch.utils import _pytree as pytree

from pipeline.errors import ModelError

# Names become Python identifiers and parts of generated code: no quote, parenthesis, blank or newline.
_NAME = re.compile(r"[\w.+@$<>:/-]*")
# Keys of mappings may have blanks, as labels of outputs do, but nothing that ends a string in code.
_KEY = re.compile(r"[^\"'\\()\[\]{};=#\n\r]*")
# Arguments of operators, such as the mode of a padding; they are passed on as strings and never evaluated.
_TEXTS = ("as_string", "as_strings")
# Only these two are read here: the module of each node, and its name before decomposition.
_METADATA = ("nn_module_stack", "from_node")
_EXPRESSIONS = ("expr_str",)
_STRUCTURES = ("in_spec", "out_spec")
_OPERATORS = ("target", "as_operator")

# Namespaces of operators on tensors; others, such as profiler or a user's own library, may do anything.
_FAMILIES = ("aten", "prims", "higher_order", "quantized_decomposed", "torchvision")
# These read and write files.
_FILES = ("save", "from_file")
_NUMBERS = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "pos", "abs", "eq", "ne", "lt", "le", "gt"),
    *("ge", "and_", "or_", "xor", "not_", "lshift", "rshift", "getitem", "matmul"),
)
_TARGET = re.compile(
    rf"torch\.ops\.(?:{'|'.join(_FAMILIES)})\.(?!(?:{'|'.join(_FILES)})\b)\w+(?:\.\w+)?"
    # Arithmetic of symbolic extents is exported as calls of Python's operator and math.
    rf"|_operator\.(?:{'|'.join(_NUMBERS)})|math\.[a-z]\w*|torch\._?sym_\w+"
)


def check_description(program: Any) -> dict[str, Any]:
    """Return a program's description, without parts unused by the import.

    Raises `ModelError` if PyTorch would run something else than operators on tensors, or could be made to.
    """
    if not isinstance(program, dict):
        raise ModelError("describes no program")
    content = {key: _check(key, value) for key, value in program.items() if key != "range_constraints"}
    for expression in (ranges := program.get("range_constraints", {})):
        check_expression(expression)
    # These are code, which is for checking the frames of a program that PyTorch runs itself.
    return {**content, "range_constraints": ranges, **({"guards_code": []} if "guards_code" in program else {})}


def _check(key: str, value: Any) -> Any:
    """Check a value by its key, and return it."""
    # Python code that PyTorch would compile.
    if key == "guards_code":
        return []
    if isinstance(value, dict):
        return _check_mapping(key, value)
    if isinstance(value, list):
        return [_check(key, item) for item in value]
    if isinstance(value, str):
        # Whatever has no rule of its own must be a name: an unknown field is refused rather than trusted.
        _STRINGS.get(key, _check_name)(value)
        return _plain_structure(value) if key in _STRUCTURES and value else value
    return value


def _check_mapping(key: str, value: Mapping[str, Any]) -> dict[str, Any]:
    if key == "metadata":
        return {name: text for name, text in value.items() if name in _METADATA and isinstance(text, str)}
    if "as_custom_obj" in value or (key == "custom_obj_values" and value):
        raise ModelError("holds an object of a class of its own, which is never loaded; make it a plain tensor")
    # Keys are names as well, such as those of values.
    for name in value:
        _check_name(name)
    return {name: _check(name, inner) for name, inner in value.items()}


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ModelError(f"calls something {name[:80]!r}, which is no name")


def _check_operator(target: str) -> None:
    if not _TARGET.fullmatch(target):
        raise ModelError(f"uses the operator {target[:80]!r}, which is not supported")


def _check_structure(text: str) -> None:
    """Refuse foreign classes in structures, and code as keys."""
    try:
        _check_node(json.loads(text) if text else None)
    except ModelError:
        raise
    except (ValueError, RecursionError):
        raise ModelError(f"describes its inputs or outputs by {text[:80]!r}, which is no JSON") from None


def _check_node(node: Any) -> None:
    if isinstance(node, dict):
        # A class to import.
        if "__enum__" in node or "default_factory_module" in node:
            raise ModelError("returns or takes a mapping of a class of its own, which is never loaded; use a dict")
        # The context of a node is JSON inside of a string of JSON.
        if isinstance(context := node.get("context"), str):
            _check_node(json.loads(context))
        for key, value in node.items():
            _check_node(key)
            if key != "context" or not isinstance(value, str):
                _check_node(value)
    elif isinstance(node, list):
        for item in node:
            _check_node(item)
    elif isinstance(node, str) and not _KEY.fullmatch(node):
        raise ModelError(f"calls an input or output {node[:80]!r}, which is no name")


def _plain_structure(text: str) -> str:
    """Return a structure with plain mappings and lists for foreign classes."""
    content = json.loads(text)
    # PyTorch writes a version in front of it.
    if isinstance(content, list) and len(content) == 2:
        return json.dumps([content[0], _plain_node(content[1])])
    return text


def _plain_node(node: Any) -> Any:
    if not isinstance(node, dict) or not isinstance(children := node.get("children_spec"), list):
        return node
    node = {**node, "children_spec": [_plain_node(child) for child in children]}
    if node.get("type") is None or node["type"] in pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE:
        return node
    # The outputs of transformers, for example, are mappings whose context is a list of their keys.
    keys = json.loads(node["context"]) if isinstance(node.get("context"), str) else None
    is_mapping = isinstance(keys, list) and len(keys) == len(children) and all(isinstance(key, str) for key in keys)
    return {**node, "type": "builtins.dict"} if is_mapping else {**node, "type": "builtins.list", "context": "null"}


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


_STRINGS: dict[str, Callable[[str], None]] = {
    **dict.fromkeys(_TEXTS, lambda _: None),
    **dict.fromkeys(_EXPRESSIONS, check_expression),
    **dict.fromkeys(_STRUCTURES, _check_structure),
    **dict.fromkeys(_OPERATORS, _check_operator),
}
