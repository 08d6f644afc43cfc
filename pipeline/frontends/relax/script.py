"""TVMScript, the text of Relax modules: checked, then read by TVM's own parser."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, TypeVar

import tvm
from tvm.script.parser import ir, relax, tirx

from pipeline.frontends.relax import json_form
from pipeline.frontends.relax.allowlist import NotAllowed, chain, check

# Imports of these are left out: their names are provided by this reader.
_IMPORTED = ("tvm", "tvm.script", "tvm.tirx.layout", "typing")
_WITHOUT_CONSTANTS = (
    "its constants are not in the text; print it with module.script(show_meta=True), or keep it with tvm.ir.save_json"
)


def parse(text: str) -> Any:
    """Return the module that a text stands for.

    Raises
    ------
    ValueError
        If it is not one, or holds what is not allowed; see `allowlist`.
    """
    try:
        # Parsing runs nothing; evaluation comes after all checks.
        with_lines = ast.parse(text)
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from None
    except (RecursionError, MemoryError):
        raise ValueError("it nests deeper than Python can read") from None
    module, values = _parts(with_lines)
    names = (each for each in ast.walk(module) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load))
    # module.script() leaves constants out by default and writes metadata[...] for them.
    if "metadata" not in values and any(each.id == "metadata" for each in names):
        raise ValueError(_WITHOUT_CONSTANTS)
    check(module, tvm.ir.Op.list_op_names(), values)
    # Without what stands before the class, but in the lines where it was.
    first = min(module.lineno, module.decorator_list[0].lineno) - 1
    class_text = "\n" * first + "\n".join(text.splitlines()[first : module.end_lineno])
    return _evaluate(class_text, values)


def _parts(tree: ast.Module) -> tuple[ast.ClassDef, dict[str, Any]]:
    """Return the class, and the values that are defined before it."""
    classes, values = [], dict[str, Any]()
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef):
            classes.append(statement)
        elif isinstance(statement, ast.Assign):
            values |= _value(statement)
        elif not _is_harmless(statement):
            raise NotAllowed(
                statement, f"{ast.unparse(statement)[:60]!r} is not allowed in TVMScript that is read from a file"
            )
    if len(classes) != 1:
        raise ValueError(f"it has {len(classes)} classes; expected one, decorated by @I.ir_module")
    # A call such as @I.ir_module(check_well_formed=False) would switch off TVM's own checks.
    decorators = [chain(each.func if isinstance(each, ast.Call) else each) for each in classes[0].decorator_list]
    if decorators != ["I.ir_module"] or isinstance(classes[0].decorator_list[0], ast.Call):
        raise NotAllowed(classes[0], f"the class {classes[0].name!r} is not decorated by @I.ir_module alone")
    return classes[0], values


def _is_harmless(statement: ast.stmt) -> bool:
    """Check whether a statement is a docstring, or imports what this reader itself provides; it is left out."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    names = [each.name for each in statement.names] if isinstance(statement, ast.Import) else []
    if isinstance(statement, ast.ImportFrom):
        names = [statement.module or ""]
    return bool(names) and all(name in _IMPORTED for name in names)


def _value(statement: ast.Assign) -> Mapping[str, Any]:
    """Define ``n = TypeVar("n")`` or ``metadata = tvm.ir.load_json(...)`` without evaluating it."""
    name, call = chain(statement.targets[0]), statement.value
    function = chain(call.func) if isinstance(call, ast.Call) else ""
    texts = [each.value if isinstance(each, ast.Constant) else None for each in getattr(call, "args", ())]
    if len(statement.targets) == 1 and len(texts) == 1 and isinstance(texts[0], str):
        if function == "TypeVar" and name == texts[0] and name.isidentifier() and not name.startswith("__"):
            return {name: TypeVar(name)}
        if function == "tvm.ir.load_json" and name == "metadata":
            return {name: json_form.parse(texts[0])}
    raise NotAllowed(statement, f"{ast.unparse(statement)[:60]!r} is not allowed in TVMScript that is read from a file")


def _evaluate(text: str, values: Mapping[str, Any]) -> Any:
    # No builtins, such as open, for whatever the checks have missed.
    names = {"I": ir, "R": relax, "T": tirx, **values, "__builtins__": {}}
    try:
        return tvm.script.parser.parse(text, extra_vars=names)
    except RecursionError:
        raise ValueError("it nests deeper than TVM can read") from None
    except Exception as error:  # TVM raises what its functions' checks meet
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ValueError(": ".join(lines[:2]) or type(error).__name__) from error
