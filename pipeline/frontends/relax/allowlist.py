"""Parts that TVMScript may be made of: TVM evaluates it as Python, so that nothing else may get there."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from pipeline.frontends.relax.vocabulary import DTYPE, FOREIGN, FREE, KERNELS, MODULES, RELAX

# The aliases under which TVM's printer writes its three dialects.
_ROOTS = ("I", "R", "T")
# No power and no shift: 9**9**9 would keep Python busy for ever.
_BINARY = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
_LARGEST = 2**63
# Each part is a variable; TVM makes them all before anybody can object.
_MOST_PARTS = 1 << 12
# The walk recurses, and so does what TVM evaluates afterwards.
_DEEPEST = 100


class NotAllowed(ValueError):
    """Raised when a text holds something that is not allowed; it says what, and in which line."""

    def __init__(self, node: ast.AST, complaint: str) -> None:
        super().__init__(f"line {getattr(node, 'lineno', 1)}: {complaint}")


def chain(node: ast.AST) -> str:
    """Return a chain of names such as ``R.nn.conv2d``; an empty text for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (prefix := chain(node.value)):
        return f"{prefix}.{node.attr}"
    return ""


def check(module: ast.ClassDef, operators: Iterable[str], names_before: Iterable[str]) -> None:
    """Check the class of a module.

    Parameters
    ----------
    module : ast.ClassDef
    operators : iterable of str
        TVM's names of Relax operators.
    outside : iterable of str
        Names of values that are defined before the class.

    Raises
    ------
    NotAllowed
        At the first thing that is not allowed.
    """
    if len(module.decorator_list) != 1 or module.bases or module.keywords:
        raise NotAllowed(module, f"the class {module.name!r} is decorated by something else than @I.ir_module alone")
    functions = [each.name for each in module.body if isinstance(each, ast.FunctionDef)]
    names = (each.removeprefix("relax.") for each in operators if each.startswith("relax."))
    # Operators come from TVM's own registry, so that new ones need no change here.
    operator_names = {each for each in names if not each.startswith(FOREIGN)}
    for number, statement in enumerate(module.body):
        if isinstance(statement, ast.FunctionDef):
            _FunctionChecker(module.name, functions, operator_names, names_before).check(statement)
        elif not (_is_text(statement) and number == 0) and not _is_attributes(statement):
            raise NotAllowed(statement, "a module holds functions only")


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _is_attributes(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and chain(call.func) == "I.module_attrs" and _is_plain(call)


def _is_plain(call: ast.Call) -> bool:
    """Check whether the only argument is a dictionary of constants, which TVM does not evaluate."""
    return (
        len(call.args) == 1
        and not call.keywords
        and isinstance(call.args[0], ast.Dict)
        and all(isinstance(each, ast.Constant) for each in (*call.args[0].keys, *call.args[0].values))
    )


class _FunctionChecker:
    """Walks through one function in the order in which TVM evaluates it, and remembers which names have a value."""

    def __init__(self, module: str, functions: Iterable[str], operators: set[str], names: Iterable[str]) -> None:
        self._module, self._functions, self._operators = module, set(functions), operators
        self._names_with_value = set(names)
        self._depth = 0

    def check(self, function: ast.FunctionDef) -> None:
        decorator = function.decorator_list[0] if len(function.decorator_list) == 1 else function
        function_of_decorator = decorator.func if isinstance(decorator, ast.Call) else decorator
        # Decorators are called with the function; any other one would be code of the file's choice.
        if chain(function_of_decorator) not in ("R.function", "T.prim_func") or getattr(function, "type_params", []):
            raise NotAllowed(function, f"{function.name!r} is decorated by neither @R.function nor @T.prim_func alone")
        if isinstance(decorator, ast.Call):
            self._expression(decorator)
        signature = function.args
        # Defaults would be evaluated apart from the body, which is what is walked through here.
        if signature.defaults or signature.kwonlyargs or signature.posonlyargs or signature.vararg or signature.kwarg:
            raise NotAllowed(function, f"{function.name!r} has others than plain parameters")
        for parameter in signature.args:
            self._optional(parameter.annotation)
            self._bind(parameter, parameter.arg)
        self._optional(function.returns)
        self._statements(function.body)

    def _statements(self, statements: list[ast.stmt]) -> None:
        for number, statement in enumerate(statements):
            if not (number == 0 and _is_text(statement)):
                self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        kinds = {
            ast.Assign: self._assign,
            ast.AnnAssign: self._annotated_assignment,
            ast.With: self._with,
            ast.For: self._for,
            ast.If: self._if,
            ast.Return: self._return,
            ast.Expr: self._call_statement,
        }
        if type(node) not in kinds:
            raise NotAllowed(node, f"a statement of the kind {type(node).__name__} is not allowed")
        kinds[type(node)](node)  # type: ignore[operator]

    def _assign(self, node: ast.Assign) -> None:
        # "cls = Module" is how TVM's printer refers to kernels of the same class.
        if len(node.targets) == 1 and chain(node.targets[0]) == "cls" and chain(node.value) == self._module:
            return
        if isinstance(node.value, ast.List):
            raise NotAllowed(node, "a variable cannot be a list")
        self._expression(node.value)
        for target in node.targets:
            self._target(target)

    def _annotated_assignment(self, node: ast.AnnAssign) -> None:
        # Annotations are evaluated as well, not only read.
        self._expression(node.annotation)
        if node.value is not None:
            self._assign(ast.Assign([node.target], node.value, lineno=node.lineno))

    def _with(self, node: ast.With) -> None:
        for item in node.items:
            self._expression(item.context_expr)
            if item.optional_vars is not None:
                self._target(item.optional_vars)
        self._statements(node.body)

    def _for(self, node: ast.For) -> None:
        if node.orelse or not isinstance(node.iter, ast.Call):
            raise NotAllowed(node, "a loop over something else than T.grid, T.serial and the like is not allowed")
        self._expression(node.iter)
        self._target(node.target)
        self._statements(node.body)

    def _if(self, node: ast.If) -> None:
        self._expression(node.test)
        self._statements(node.body)
        self._statements(node.orelse)

    def _return(self, node: ast.Return) -> None:
        self._optional(node.value)

    def _call_statement(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Call):
            raise NotAllowed(node, "an expression whose value nobody uses is not allowed")
        self._expression(node.value)

    def _target(self, node: ast.expr) -> None:
        if isinstance(node, ast.Tuple):
            for element in node.elts:
                self._target(element)
        elif isinstance(node, ast.Subscript):
            self._expression(node)
        elif isinstance(node, ast.Name):
            self._bind(node, node.id)
        else:
            raise NotAllowed(node, f"assigning to {ast.unparse(node)!r} is not allowed")

    def _bind(self, node: ast.AST, name: str) -> None:
        # A new meaning of R or T would make every later check worthless.
        if name in (*_ROOTS, "cls", "metadata", self._module) or name.startswith("__"):
            raise NotAllowed(node, f"no variable may be called {name!r}")
        self._names_with_value.add(name)

    def _optional(self, node: ast.expr | None) -> None:
        if node is not None:
            self._expression(node)

    def _expression(self, node: ast.expr) -> None:
        kinds = {
            ast.Constant: self._constant,
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.Call: self._call,
            ast.BinOp: self._binary,
        }
        self._depth += 1
        if self._depth > _DEEPEST:
            raise NotAllowed(node, f"expressions nest more than {_DEEPEST} deep")
        if type(node) in kinds:
            kinds[type(node)](node)  # type: ignore[operator]
        elif isinstance(
            node, ast.Tuple | ast.List | ast.Dict | ast.Subscript | ast.Slice | ast.UnaryOp | ast.Compare | ast.BoolOp
        ):
            self._parts(node)
        else:
            raise NotAllowed(node, f"{ast.unparse(node)[:60]!r} is not allowed ({type(node).__name__})")
        self._depth -= 1

    def _parts(self, node: ast.expr) -> None:
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.expr):
                self._expression(part)
            elif isinstance(part, ast.Is | ast.IsNot | ast.In | ast.NotIn):
                raise NotAllowed(node, f"{ast.unparse(node)[:60]!r} is not allowed ({type(part).__name__})")

    def _constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, str):
            # TVM evaluates strings in shapes, such as "n * 2"; two underscores lead to Python's own attributes.
            if not FREE.fullmatch(value) or "**" in value or "__" in value:
                raise NotAllowed(node, f"the text {value[:60]!r} is not allowed: it might be evaluated")
        elif value is not None and not isinstance(value, bool | int | float):
            raise NotAllowed(node, f"a value of the type {type(value).__name__} is not allowed")
        elif isinstance(value, int) and abs(value) >= _LARGEST:
            raise NotAllowed(node, "a number does not fit into 64 bits")

    def _name(self, node: ast.Name) -> None:
        if node.id not in self._names_with_value:
            raise NotAllowed(node, f"{node.id!r} has no value here")

    def _attribute(self, node: ast.Attribute) -> None:
        name = chain(node)
        # Only one step from a root: R.nn.relu is in the registry as "nn.relu", anything deeper is not.
        root, _, member = name.partition(".")
        is_allowed = {
            "I": member in MODULES,
            "R": member in RELAX or member in self._operators,
            "T": member in KERNELS or DTYPE.fullmatch(member) is not None,
            "cls": member in self._functions,
            self._module: member in self._functions,
        }
        if not is_allowed.get(root, False):
            raise NotAllowed(node, f"{name or ast.unparse(node)[:60]!r} is not allowed")

    def _call(self, node: ast.Call) -> None:
        name = chain(node.func)
        # A bare name would be a variable, whose value may be callable.
        if not isinstance(node.func, ast.Attribute):
            raise NotAllowed(node, f"calling {name or ast.unparse(node.func)[:60]!r} is not allowed")
        self._attribute(node.func)
        # TVM takes these dictionaries as they are; their strings may hold anything.
        if name in ("R.func_attr", "T.func_attr") and _is_plain(node):
            return
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            self._expression(argument)
            if name == "R.split" and isinstance(argument, ast.Constant) and _is_many(argument.value):
                raise NotAllowed(node, f"a tensor cannot be split into {argument.value!r} parts")
        if any(keyword.arg is None for keyword in node.keywords):
            raise NotAllowed(node, "'**' is not allowed")

    def _binary(self, node: ast.BinOp) -> None:
        if not isinstance(node.op, _BINARY):
            raise NotAllowed(node, f"{ast.unparse(node)[:60]!r} is not allowed ({type(node.op).__name__})")
        # "a" * 10**9 and [0] * 10**9 are a few characters of text.
        for operand in (node.left, node.right):
            if isinstance(operand, ast.Tuple | ast.List | ast.Dict) or isinstance(getattr(operand, "value", None), str):
                raise NotAllowed(node, f"{ast.unparse(node)[:60]!r} is not allowed: it is no sum of numbers")
            self._expression(operand)


def _is_many(value: object) -> bool:
    return isinstance(value, int) and value > _MOST_PARTS
