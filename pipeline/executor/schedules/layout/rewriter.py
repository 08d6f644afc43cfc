"""One layout for a whole stage: channels last, changed at the stage's borders and where an operator demands it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

from tvm import relax
from tvm.ir import GenericConst

from pipeline.executor.schedules.layout import general
from pipeline.executor.schedules.layout.values import (
    FIRST,
    TO_FIRST,
    TO_LAST,
    constant,
    is_image,
    layout_of,
    name_of,
    rebuilt,
)

TURNED = "turned:"
"""Name of a tensor whose layout was changed, so that it is not taken for one of the model's."""

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

    @cached_property
    def turns(self) -> bool:
        """Whether an operator has its channels first, so that there are reasons to turn an image."""
        return any(layout_of(value) == FIRST for value in self._made.values())

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
            return constant(value.value.numpy().transpose(TO_LAST))
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
        if made is None and (other := general.rule(name)):
            made = other(self, value)
        if made is not None:
            plain = isinstance(made, Plain) or not is_image(binding.var.ty)
            var = self.builder.emit(made.value if isinstance(made, Plain) else made, str(binding.var.name))
            (self._plain if plain else self._last)[binding.var] = var
        else:
            self._plain[binding.var] = self.builder.emit(self._as_it_is(value), str(binding.var.name))

    def _as_it_is(self, value: Any) -> Any:
        return rebuilt(value, self.plain)
