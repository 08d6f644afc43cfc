"""The JSON of ``tvm.ir.save_json`` -> the same tree that the text gives, with the names that TVM would print."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterable

from pipeline.errors import ModelError
from pipeline.split.frontends.relay.metadata import Node, Objects
from pipeline.split.frontends.relay.syntax import (
    Binding,
    Block,
    Call,
    Expression,
    Function,
    GlobalReference,
    If,
    Literal,
    OperatorReference,
    OtherType,
    Parameter,
    Program,
    Projection,
    Reference,
    TensorType,
    TupleOf,
    Type,
)

_DEEPEST = 24
"""How far functions and branches may nest."""

_ATOMS = ("relay.Var", "relay.Constant", "relay.GlobalVar", "GlobalVar", "Op")
_COMPUTED = ("relay.Call", "relay.Tuple", "relay.TupleGetItem", "relay.If", "relay.Let", "relay.Function")


def parse(text: str, file: str) -> Program:
    """Read the JSON of a Relay module, or of a single function, which is then called ``main``.

    Raises
    ------
    ModelError
        If it is damaged, or holds something else.
    """
    objects = Objects(text, repr(file))
    root = objects.node(objects.root)
    if root.kind not in ("IRModule", "relay.Function"):
        raise ModelError(f"{file!r} holds {root.kind or 'nothing'}, not a Relay module or function")
    found = [("main", objects.root)]
    if root.kind == "IRModule":
        found = objects.entries(objects.follow(objects.root, "functions"))
    functions = {name: _Reader(objects).function(number, None) for name, number in found}
    return Program(file, functions, lambda number: f"node {number}")


class _Scope:
    """What has a name here: the variables and intermediates of a block and of those around it."""

    def __init__(self, outer: _Scope | None) -> None:
        self.depth: int = outer.depth + 1 if outer else 0
        self._names: ChainMap[int, str] = outer.inner() if outer else ChainMap()

    def inner(self) -> ChainMap[int, str]:
        return self._names.new_child()

    def name(self, number: int) -> str | None:
        return self._names.get(number)

    def set(self, number: int, name: str) -> None:
        self._names[number] = name


class _Reader:
    """Reads one function."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._taken: set[str] = set()
        self._copies: Counter[str] = Counter()
        self._numbered = 0

    def function(self, number: int, outer: _Scope | None) -> Function:
        objects = self._objects
        objects.node(number, "relay.Function")
        scope = _Scope(outer)
        parameters = tuple(
            Parameter(self._variable(each, scope), self._type(each), each)
            for each in objects.items(objects.follow(number, "params"))
        )
        return Function(parameters, self._block(objects.follow(number, "body"), scope), number)

    def _variable(self, number: int, scope: _Scope) -> str:
        """Give a variable a name that no other one has, as TVM's printer does."""
        objects = self._objects
        objects.node(number, "relay.Var")
        identity = objects.follow(number, "vid")
        hint = objects.node(objects.follow(identity, "name_hint")).text or "x"
        hint = f"v{hint}" if hint[0].isdecimal() else hint
        name = hint
        while name in self._taken:
            self._copies[hint] += 1
            name = f"{hint}_{self._copies[hint]}"
        self._taken.add(name)
        scope.set(identity, name)
        return name

    def _type(self, number: int) -> Type:
        objects = self._objects
        number = objects.follow(number, "type_annotation")
        node = objects.node(number)
        if node.kind != "relay.TensorType":
            return OtherType(node.kind or "no type")
        shape = [objects.plain(each) for each in objects.items(objects.follow(number, "shape"))]
        extents = tuple(each if isinstance(each, int) else None for each in shape)
        return TensorType(extents, node.attributes.get("dtype", ""))

    def _block(self, number: int, outer: _Scope) -> Expression:
        """Read a chain of `let` and what follows it."""
        objects, scope, start = self._objects, _Scope(outer), number
        if scope.depth > _DEEPEST:
            raise objects.error(
                number, f"functions and branches nest more than {_DEEPEST} deep, which is not supported"
            )
        bindings: list[Binding] = []
        chain = set()
        while objects.node(number).kind == "relay.Let":
            if number in chain:
                raise objects.error(number, "this is part of itself")
            chain.add(number)
            value = self._value(objects.follow(number, "value"), scope, bindings)
            bindings.append(Binding(self._variable(objects.follow(number, "var"), scope), value, number))
            number = objects.follow(number, "body")
        result = self._value(number, scope, bindings)
        return Block(tuple(bindings), result, start) if bindings else result

    def _value(self, number: int, scope: _Scope, bindings: list[Binding]) -> Expression:
        """Bind all that `number` is computed from, and return it.

        TVM's printer gives a number to an operand when all operands beside it have been visited.
        """
        visited: set[int] = set()
        waiting = [(number, False)]
        while waiting:
            current, binds = waiting.pop()
            if self._known(current, scope):
                continue
            if binds:
                value = self._expression(current, scope)
                name = f"%{self._numbered}"
                self._numbered += 1
                scope.set(current, name)
                bindings.append(Binding(name, value, current))
            elif current not in visited:
                visited.add(current)
                operands = self._operands(current)
                waiting += [(each, binds) for binds in (True, False) for each in reversed(operands)]
        return self._operand(number, scope) if self._known(number, scope) else self._expression(number, scope)

    def _known(self, number: int, scope: _Scope) -> bool:
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

    def _operand(self, number: int, scope: _Scope) -> Expression:
        """Return an atom, or a reference to what has a name."""
        objects = self._objects
        node = objects.node(number)
        if node.kind == "Op":
            return OperatorReference(node.text, number)
        if node.kind in ("GlobalVar", "relay.GlobalVar"):
            return GlobalReference(objects.node(objects.follow(number, "name_hint")).text, number)
        if node.kind == "relay.Constant":
            return Literal(objects.constant(number), number)
        name = scope.name(objects.follow(number, "vid") if node.kind == "relay.Var" else number)
        if name is None:
            raise objects.error(number, "this is used where it is not defined, or is part of itself")
        return Reference(name, number)

    def _expression(self, number: int, scope: _Scope) -> Expression:
        objects = self._objects
        node = objects.node(number, *_COMPUTED)
        if node.kind == "relay.Function":
            return self.function(number, scope)
        if node.kind == "relay.Let":
            return self._block(number, scope)
        operands = self._all(self._operands(number), scope)
        if node.kind == "relay.Call":
            attributes = objects.attributes(objects.follow(number, "attrs"))
            return Call(operands[0], operands[1:], attributes, number)
        if node.kind == "relay.Tuple":
            return TupleOf(operands, number)
        if node.kind == "relay.If":
            branches = [self._block(objects.follow(number, each), scope) for each in ("true_branch", "false_branch")]
            return If(operands[0], branches[0], branches[1], number)
        return Projection(operands[0], self._index(number, node), number)

    def _all(self, numbers: Iterable[int], scope: _Scope) -> tuple[Expression, ...]:
        return tuple(self._operand(each, scope) for each in numbers)

    def _index(self, number: int, node: Node) -> int:
        text = node.attributes.get("index", "")
        if not text.isdecimal() or len(text) > 9:
            raise self._objects.error(number, f"expected the number of a field in 'index', found {text!r}")
        return int(text)
