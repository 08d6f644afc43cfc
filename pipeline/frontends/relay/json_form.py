"""JSON of ``tvm.ir.save_json`` -> the text's tree, under TVM's printed names."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterable

from pipeline.errors import ModelError
from pipeline.frontends.relay import syntax
from pipeline.frontends.relay.metadata import JsonNode, JsonObjects

_DEEPEST = 24
"""How far functions and branches may nest."""

_ATOMS = ("relay.Var", "relay.Constant", "relay.GlobalVar", "GlobalVar", "Op")
_COMPUTED = ("relay.Call", "relay.Tuple", "relay.TupleGetItem", "relay.If", "relay.Let", "relay.Function")


def parse(text: str, file: str) -> syntax.RelayProgram:
    """Read the JSON of a Relay module or function, or raise `ModelError`.

    A single function is called ``main``.
    """
    objects = JsonObjects(text, repr(file))
    root = objects.node(objects.root)
    if root.kind not in ("IRModule", "relay.Function"):
        raise ModelError(f"{file!r} holds {root.kind or 'nothing'}, not a Relay module or function")
    functions_by_name = [("main", objects.root)]
    # TVM saves what it is given: a module, or a single function.
    if root.kind == "IRModule":
        functions_by_name = objects.entries(objects.follow(objects.root, "functions"))
    functions = {name: _FunctionReader(objects).function(number, None) for name, number in functions_by_name}
    return syntax.RelayProgram(file, functions, lambda number: f"node {number}")


class _NodeScope:
    """Names of variables and intermediates in nested blocks."""

    def __init__(self, enclosing: _NodeScope | None) -> None:
        self.depth: int = enclosing.depth + 1 if enclosing else 0
        self._names: ChainMap[int, str] = enclosing.inner() if enclosing else ChainMap()

    def inner(self) -> ChainMap[int, str]:
        return self._names.new_child()

    def name(self, number: int) -> str | None:
        return self._names.get(number)

    def set(self, number: int, name: str) -> None:
        self._names[number] = name


class _FunctionReader:
    """Reads one function."""

    def __init__(self, objects: JsonObjects) -> None:
        self._objects = objects
        self._names: set[str] = set()
        self._copies: Counter[str] = Counter()
        self._unnamed_count = 0

    def function(self, number: int, enclosing: _NodeScope | None) -> syntax.RelayFunction:
        objects = self._objects
        objects.node(number, "relay.Function")
        scope = _NodeScope(enclosing)
        parameters = tuple(
            syntax.Parameter(self._variable(parameter, scope), self._type(parameter), parameter)
            for parameter in objects.items(objects.follow(number, "params"))
        )
        return syntax.RelayFunction(parameters, self._block(objects.follow(number, "body"), scope), number)

    def _variable(self, number: int, scope: _NodeScope) -> str:
        """Give a variable a unique name, as TVM's printer does."""
        objects = self._objects
        objects.node(number, "relay.Var")
        identity = objects.follow(number, "vid")
        hint = objects.node(objects.follow(identity, "name_hint")).text or "x"
        # The printer puts a v in front, as a variable of digits only is a numbered one.
        hint = f"v{hint}" if hint[0].isdecimal() else hint
        name = hint
        while name in self._names:
            self._copies[hint] += 1
            name = f"{hint}_{self._copies[hint]}"
        self._names.add(name)
        scope.set(identity, name)
        return name

    def _type(self, number: int) -> syntax.Type:
        objects = self._objects
        number = objects.follow(number, "type_annotation")
        node = objects.node(number)
        # Types of closures and tuples, which only main's parameters may not have.
        if node.kind != "relay.TensorType":
            return syntax.OtherType(node.kind or "no type")
        shape = [objects.plain(extent) for extent in objects.items(objects.follow(number, "shape"))]
        extents = tuple(extent if isinstance(extent, int) else None for extent in shape)
        return syntax.TensorType(extents, node.attributes.get("dtype", ""))

    def _block(self, number: int, enclosing: _NodeScope) -> syntax.Expression:
        """Read a chain of `let` and its body."""
        objects, scope, start = self._objects, _NodeScope(enclosing), number
        if scope.depth > _DEEPEST:
            raise objects.error(
                number, f"functions and branches nest more than {_DEEPEST} deep, which is not supported"
            )
        bindings: list[syntax.LetBinding] = []
        # Damaged files may refer to themselves; without a bound the loop would not end.
        chain = set()
        while objects.node(number).kind == "relay.Let":
            if number in chain:
                raise objects.error(number, "this is part of itself")
            chain.add(number)
            value = self._value(objects.follow(number, "value"), scope, bindings)
            bindings.append(syntax.LetBinding(self._variable(objects.follow(number, "var"), scope), value, number))
            number = objects.follow(number, "body")
        result = self._value(number, scope, bindings)
        return syntax.LetBlock(tuple(bindings), result, start) if bindings else result

    def _value(self, number: int, scope: _NodeScope, bindings: list[syntax.LetBinding]) -> syntax.Expression:
        """Bind everything `number` depends on, and return it.

        TVM's printer gives a number to an operand when all operands beside it have been visited.
        """
        expanded_nodes: set[int] = set()
        # A stack of its own, as chains of ten thousand operators are deeper than Python recurses.
        stack = [(number, False)]
        while stack:
            current, is_ready = stack.pop()
            if self._has_name(current, scope):
                continue
            if is_ready:
                value = self._expression(current, scope)
                name = f"%{self._unnamed_count}"
                self._unnamed_count += 1
                scope.set(current, name)
                bindings.append(syntax.LetBinding(name, value, current))
            elif current not in expanded_nodes:
                expanded_nodes.add(current)
                operands = self._operands(current)
                stack += [(operand, is_ready) for is_ready in (True, False) for operand in reversed(operands)]
        return self._operand(number, scope) if self._has_name(number, scope) else self._expression(number, scope)

    def _has_name(self, number: int, scope: _NodeScope) -> bool:
        return self._objects.node(number).kind in _ATOMS or scope.name(number) is not None

    def _operands(self, number: int) -> list[int]:
        objects = self._objects
        node = objects.node(number, *_ATOMS, *_COMPUTED)
        follow = objects.follow
        if node.kind == "relay.Call":
            return [follow(number, "op"), *objects.items(follow(number, "args"))]
        if node.kind == "relay.Tuple":
            return list(objects.items(follow(number, "fields")))
        single = {"relay.TupleGetItem": "tuple_value", "relay.If": "cond"}.get(node.kind)
        return [follow(number, single)] if single else []

    def _operand(self, number: int, scope: _NodeScope) -> syntax.Expression:
        """Return an atom, or a reference by name."""
        objects = self._objects
        node = objects.node(number)
        if node.kind == "Op":
            return syntax.OperatorReference(node.text, number)
        if node.kind in ("GlobalVar", "relay.GlobalVar"):
            return syntax.GlobalReference(objects.node(objects.follow(number, "name_hint")).text, number)
        if node.kind == "relay.Constant":
            return syntax.Literal(objects.constant(number), number)
        name = scope.name(objects.follow(number, "vid") if node.kind == "relay.Var" else number)
        if name is None:
            raise objects.error(number, "this is used where it is not defined, or is part of itself")
        return syntax.Reference(name, number)

    def _expression(self, number: int, scope: _NodeScope) -> syntax.Expression:
        objects = self._objects
        node = objects.node(number, *_COMPUTED)
        if node.kind == "relay.Function":
            return self.function(number, scope)
        if node.kind == "relay.Let":
            return self._block(number, scope)
        operands = self._expressions(self._operands(number), scope)
        if node.kind == "relay.Call":
            attributes = objects.attributes(objects.follow(number, "attrs"))
            return syntax.Call(operands[0], operands[1:], attributes, number)
        if node.kind == "relay.Tuple":
            return syntax.TupleOf(operands, number)
        if node.kind == "relay.If":
            branches = [
                self._block(objects.follow(number, branch), scope) for branch in ("true_branch", "false_branch")
            ]
            return syntax.If(operands[0], branches[0], branches[1], number)
        return syntax.Projection(operands[0], self._index(number, node), number)

    def _expressions(self, numbers: Iterable[int], scope: _NodeScope) -> tuple[syntax.Expression, ...]:
        return tuple(self._operand(operand, scope) for operand in numbers)

    def _index(self, number: int, node: JsonNode) -> int:
        text = node.attributes.get("index", "")
        # No tuple has as many fields; Python refuses to convert numbers of thousands of digits.
        if not text.isdecimal() or len(text) > 9:
            raise self._objects.error(number, f"expected the number of a field in 'index', found {text!r}")
        return int(text)
