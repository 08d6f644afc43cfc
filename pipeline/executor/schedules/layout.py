"""One layout for a whole stage: channels last, changed at the stage's borders and where an operator demands it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from tvm import relax, tirx
from tvm.ir import Call, GenericConst

TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
TURNED = "turned:"
"""Name of a tensor whose layout was changed, so that it is not taken for one of the model's."""

AXIS = {0: 0, 1: 3, 2: 1, 3: 2}
"""Where an axis of NCHW is in NHWC."""

# Element by element, so that any layout does; several operands are broadcast.
_ELEMENTWISE = {
    "abs", "add", "astype", "ceil", "clip", "cos", "divide", "erf", "exp", "floor", "log", "maximum", "minimum",
    "multiply", "negative", "nn.gelu", "nn.gelu_tanh", "nn.leakyrelu", "nn.relu", "nn.relu6", "nn.silu", "nn.softplus",
    "power", "round", "rsqrt", "sigmoid", "sign", "sin", "sqrt", "square", "subtract", "tanh",
}  # fmt: skip
_POOLS = {"nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d"}
_REDUCTIONS = {"mean", "sum", "max", "min"}

Rule = Callable[["Rewriter", Any], Any]
"""Takes a call, returns its value with channels last (or `Plain`), or None if the rule does not apply."""


class Plain(NamedTuple):
    """A value of four axes that a rule made in the model's own layout."""

    value: Any


class Rewriter:
    """Writes a stage's function anew, channels last.

    Parameters
    ----------
    rules : mapping of str to Rule
        By operator name, asked before the general ones.
    inner : set of str, optional
        Parameters that come with their channels last, if the function is the inside of a larger one; outputs
        that are made so are returned so, and added.
    """

    def __init__(self, function: Any, rules: dict[str, Rule], inner: set[str] | None = None) -> None:
        self._function = function
        self._rules = rules
        self._inner = inner
        self.builder = relax.BlockBuilder()
        self._plain: dict[Any, Any] = {}
        self._last: dict[Any, Any] = {}
        self._made: dict[Any, Any] = {
            binding.var: binding.value for block in function.body.blocks for binding in block.bindings
        }

    def run(self) -> Any:
        """Return a module whose ``main`` computes the same."""
        params = [self._param(param) for param in self._function.params]
        body = self._function.body
        with self.builder.function("main", params):
            with self.builder.dataflow():
                for block in body.blocks:
                    for binding in block.bindings:
                        self._bind(binding)
                outputs = body.body.fields if isinstance(body.body, relax.Tuple) else [body.body]
                made = [self.builder.emit_output(self._output(each)) for each in outputs]
            self.builder.emit_func_output(made if isinstance(body.body, relax.Tuple) else made[0])
        return self.builder.get()

    def _param(self, param: Any) -> Any:
        last = is_image(param.ty) and str(param.name) in (self._inner or ())
        ty = relax.TensorType([param.ty.shape[axis] for axis in TO_LAST], param.ty.dtype) if last else param.ty
        var = relax.Var(param.name, ty)
        (self._last if last else self._plain)[param] = var
        return var

    def _output(self, value: Any) -> Any:
        if self._inner is None or not self.is_last(value):
            return self.plain(value)
        self._inner.add(str(value.name))
        return self._last[value]

    def made_by(self, var: Any, *names: str) -> Any:
        """Return the call that makes `var`, if it is one of those operators."""
        value = self._made.get(var) if isinstance(var, relax.Var) else None
        return value if value is not None and name_of(value) in names else None

    def plain(self, value: Any) -> Any:
        """Return `value` in its own layout."""
        if not isinstance(value, relax.Var):
            return value
        if value not in self._plain:
            self._plain[value] = self.builder.emit(relax.op.permute_dims(self._last[value], TO_FIRST), TURNED)
        return self._plain[value]

    def last(self, value: Any) -> Any:
        """Return a value of four axes with its channels last."""
        if isinstance(value, GenericConst):
            return relax.const(np.ascontiguousarray(value.value.numpy().transpose(TO_LAST)))
        if value not in self._last:
            self._last[value] = self.builder.emit(relax.op.permute_dims(self._plain[value], TO_LAST), TURNED)
        return self._last[value]

    def is_last(self, value: Any) -> bool:
        """Whether `value` is at hand with its channels last."""
        return isinstance(value, relax.Var) and value in self._last

    def _bind(self, binding: Any) -> None:
        value = binding.value
        name = name_of(value)
        rule = self._rules.get(name)
        made = rule(self, value) if rule else None
        if made is None and (general := _general(name)):
            made = general(self, value)
        if made is not None:
            plain = isinstance(made, Plain) or not is_image(binding.var.ty)
            var = self.builder.emit(made.value if isinstance(made, Plain) else made, str(binding.var.name))
            (self._plain if plain else self._last)[binding.var] = var
        else:
            self._plain[binding.var] = self.builder.emit(self._as_it_is(value), str(binding.var.name))

    def _as_it_is(self, value: Any) -> Any:
        return rebuilt(value, self.plain)


def name_of(value: Any) -> str:
    """Return the name of the operator that an expression calls, without ``relax.``."""
    return str(value.op.name).removeprefix("relax.") if isinstance(value, Call) and hasattr(value.op, "name") else ""


def is_image(ty: Any) -> bool:
    """Whether a type is a tensor of batch, channels, height, width."""
    return isinstance(ty, relax.TensorType) and ty.ndim == 4


def is_static(*values: Any) -> bool:
    """Whether the shapes of tensors are known."""
    return all(
        isinstance(each.ty, relax.TensorType)
        and each.ty.shape is not None
        and all(isinstance(extent, tirx.IntImm) for extent in each.ty.shape)
        for each in values
    )


def extents(ty: Any) -> tuple[int, ...]:
    """Return the shape of a type."""
    return tuple(int(extent) for extent in ty.shape)


def rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return an expression with `change` applied to its operands."""
    if isinstance(value, Call):
        return Call(value.op, [rebuilt(each, change) for each in value.args], value.attrs, value.ty_args)
    if isinstance(value, relax.Tuple):
        return relax.Tuple([rebuilt(field, change) for field in value.fields])
    if isinstance(value, relax.TupleGetItem):
        return relax.TupleGetItem(change(value.tuple_value), value.index)
    return change(value)


def _general(name: str) -> Rule | None:
    if name in _ELEMENTWISE:
        return _elementwise
    if name in _POOLS:
        return _pool
    if name in _REDUCTIONS:
        return _reduction
    return {"concat": _concat, "reshape": _reshape}.get(name)


def _elementwise(rewriter: Rewriter, call: Any) -> Any:
    tensors = [each for each in call.args if isinstance(each, relax.Var | GenericConst)]
    if not any(rewriter.is_last(each) for each in tensors) or not all(_fits(each) for each in tensors):
        return None
    return rebuilt(call, lambda each: _image(rewriter, each) if isinstance(each, relax.Var | GenericConst) else each)


def _fits(value: Any) -> bool:
    return is_image(value.ty) or (isinstance(value, GenericConst) and len(value.ty.shape) <= 4)


def _image(rewriter: Rewriter, value: Any) -> Any:
    """Return an operand as it is broadcast against an image with its channels last."""
    if is_image(value.ty):
        return rewriter.last(value)
    array = value.value.numpy()
    if array.ndim == 0 or array.size == 1:
        return relax.const(array.reshape(()))
    return relax.const(np.ascontiguousarray(array.reshape((1,) * (4 - array.ndim) + array.shape).transpose(TO_LAST)))


def _pool(rewriter: Rewriter, call: Any) -> Any:
    if call.attrs.layout != "NCHW":
        return None
    attrs = {key: getattr(call.attrs, key) for key in call.attrs.keys()}  # noqa: SIM118 - not a mapping
    attrs |= {"layout": "NHWC", "out_layout": "NHWC"}
    made = getattr(relax.op.nn, name_of(call).removeprefix("nn."))
    return made(rewriter.last(call.args[0]), **attrs)


def _reduction(rewriter: Rewriter, call: Any) -> Any:
    source, axes = call.args[0], call.attrs.axis
    if not rewriter.is_last(source) or axes is None:
        return None
    axes = {int(axis) % 4 for axis in axes}
    if not call.attrs.keepdims and not ({2, 3} <= axes or 1 in axes):
        return None
    made = getattr(relax.op, name_of(call))
    return made(rewriter.last(source), sorted(AXIS[axis] for axis in axes), bool(call.attrs.keepdims))


def _concat(rewriter: Rewriter, call: Any) -> Any:
    fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else []
    if not any(rewriter.is_last(each) for each in fields) or not all(is_image(each.ty) for each in fields):
        return None
    return relax.op.concat([rewriter.last(each) for each in fields], AXIS[int(call.attrs.axis) % 4])


def _reshape(rewriter: Rewriter, call: Any) -> Any:
    source = call.args[0]
    if rewriter.is_last(source) and extents(source.ty)[2:] == (1, 1) and not is_image(call.ty):
        return relax.op.reshape(rewriter.last(source), call.args[1])
    return _shuffled(rewriter, call)


def _shuffled(rewriter: Rewriter, call: Any) -> Any:
    """Channels that are split in groups, transposed and joined again."""
    turned = rewriter.made_by(call.args[0], "permute_dims")
    split = None if turned is None else rewriter.made_by(turned.args[0], "reshape")
    if turned is None or split is None or not is_image(call.ty) or turned.attrs.axes is None:
        return None
    if [int(axis) for axis in turned.attrs.axes] != [0, 2, 1, 3, 4]:
        return None
    source = split.args[0]
    if not rewriter.is_last(source) or extents(call.ty) != extents(source.ty):
        return None
    batch, groups, size, height, width = extents(split.ty)
    if extents(source.ty) != (batch, groups * size, height, width):
        return None
    parts = rewriter.builder.emit(relax.op.reshape(rewriter.last(source), (batch, height, width, groups, size)))
    parts = rewriter.builder.emit(relax.op.permute_dims(parts, (0, 1, 2, 4, 3)))
    return relax.op.reshape(parts, (batch, height, width, groups * size))
