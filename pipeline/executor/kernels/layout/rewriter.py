"""Rewriter: one layout per stage, channels last, changed only where required."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace as replace_fields
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from tvm import relax
from tvm.ir import GenericConst

from pipeline.core.numerics import EXACT, Numerics
from pipeline.executor.kernels import provenance
from pipeline.executor.kernels.layout.expressions import (
    FIRST,
    TO_FIRST,
    TO_LAST,
    constant,
    is_image,
    layout_of,
    name_of,
)
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.model.passes.bindings import replace

TURNED = "turned:"
"""Name prefix of a transposed tensor, to tell it from the model's."""


class ModelLayout(NamedTuple):
    """Value of four axes in the model's layout."""

    value: Any


class LineLayout(NamedTuple):
    """Value (batch, channels, length) as a channels-last image of one row."""

    value: Any


class Rewrite(ABC):
    """Rewrite of operator calls during layout assignment."""

    operators: ClassVar[AbstractSet[str]]
    """Names in Relax, without ``relax.``; the empty one stands for what is no call of an operator."""

    @abstractmethod
    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Return a call's new value, or None for the next rewrite."""


class Rewriter:
    """Writes a stage's function anew, channels last, by rewrites in the order of trial.

    If the function is the inside of a larger one, `channels_last` are its parameters that come with their channels
    last; outputs that are made so are returned so, and added.

    Attributes
    ----------
    name : str
        Tensor of the present call, as `Numerics.arithmetic_of` takes it.
    errors : dict of str to float
        Bounds on the errors of tensors whose sums are rewritten, as shares of their largest values.
    intermediates : dict
        Intermediate values of a call's rewrite, for a later rewrite that continues from there.
    """

    def __init__(
        self,
        function: Any,
        rewrites: Sequence[Rewrite],
        cpu: Microarchitecture,
        numerics: Numerics,
        channels_last: set[str] | None = None,
    ) -> None:
        self._function = function
        self._rewrites = rewrites
        self._channels_last_names = channels_last
        self.numerics, self.name = numerics, ""
        self.errors: dict[str, float] = {}
        self._cpu = cpu
        self.builder = relax.BlockBuilder()
        self.intermediates: dict[Any, Any] = {}
        self._plain_values: dict[Any, Any] = {}
        self._last: dict[Any, Any] = {}
        self._lines: dict[Any, Any] = {}
        self._narrow: dict[Any, Any] = {}
        self._calls: dict[Any, Any] = {
            binding.var: binding.value for block in function.body.blocks for binding in block.bindings
        }

    @property
    def cpu(self) -> Microarchitecture:
        """Processor with the number formats of the present call."""
        arithmetic, weights = self.numerics.arithmetic_of(self.name), self.numerics.weights_of(self.name)
        # Layouts were timed with weights of four bytes; with two, another one may be the fastest.
        layouts = self._cpu.layouts if weights == "float32" else None
        return replace_fields(self._cpu, arithmetic=arithmetic, weights=weights, layouts=layouts)

    @cached_property
    def turns(self) -> bool:
        """True if channels-first operators give a reason to transpose images."""
        # A model that has its channels last everywhere would only be turned back and forth.
        return any(layout_of(value) == FIRST for value in self._calls.values())

    def run(self) -> Any:
        """Return a module with an equivalent ``main``."""
        params = [self._param(param) for param in self._function.params]
        body = self._function.body
        with self.builder.function("main", params):
            with self.builder.dataflow():
                for block in body.blocks:
                    for binding in block.bindings:
                        self._bind(binding)
                outputs = body.body.fields if isinstance(body.body, relax.Tuple) else [body.body]
                results = [self.builder.emit_output(self._output(output)) for output in outputs]
            self.builder.emit_func_output(results if isinstance(body.body, relax.Tuple) else results[0])
        module = self.builder.get()
        module["main"] = provenance.with_errors(module["main"], self.errors)
        return module

    def _param(self, param: Any) -> Any:
        last = is_image(param.ty) and str(param.name) in (self._channels_last_names or ())
        ty = relax.TensorType([param.ty.shape[axis] for axis in TO_LAST], param.ty.dtype) if last else param.ty
        var = relax.Var(param.name, ty)
        (self._last if last else self._plain_values)[param] = var
        return var

    def _output(self, value: Any) -> Any:
        if self._channels_last_names is None or not self.is_last(value):
            return self.plain(value)
        # Told by way of the caller's own set, with which the next group of the stage is compiled.
        self._channels_last_names.add(str(value.name))
        return self._last[value]

    def producer(self, var: Any, *names: str) -> Any:
        """Return the call behind `var`, for the given operators."""
        value = self._calls.get(var) if isinstance(var, relax.Var) else None
        return value if value is not None and name_of(value) in names else None

    def plain(self, value: Any) -> Any:
        """Return `value` in its own layout."""
        if not isinstance(value, relax.Var):
            return value
        # Turned back once for all readers, and only if there are any.
        if value not in self._plain_values:
            turned = self._line_turned_back(value) if value in self._lines else self._image_turned_back(value)
            self._plain_values[value] = self.builder.emit(turned, TURNED)
        return self._widen(self._plain_values[value])

    def _image_turned_back(self, value: Any) -> Any:
        return relax.op.permute_dims(self._last[value], TO_FIRST)

    def _line_turned_back(self, value: Any) -> Any:
        batch, channels, length = value.ty.shape
        row = self.builder.emit(relax.op.reshape(self._lines[value], (batch, length, channels)), TURNED)
        return relax.op.permute_dims(row, (0, 2, 1))

    def last(self, value: Any) -> Any:
        """Return a value of four axes with channels last."""
        # A constant is turned while the stage is compiled, not in each frame.
        if isinstance(value, GenericConst):
            return constant(value.value.numpy().transpose(TO_LAST))
        # Once for all readers that want it so.
        if value not in self._last:
            self._last[value] = self.builder.emit(relax.op.permute_dims(self.plain(value), TO_LAST), TURNED)
        return self._widen(self._last[value])

    def narrow(self, value: Any, *, is_last: bool) -> Any:
        """Return a value as bfloat16, which it is from now on for all readers of this layout."""
        values = self._last if is_last else self._plain_values
        wide = self.last(value) if is_last else self.plain(value)
        stored = values[value]
        if stored not in self._narrow:
            self._narrow[stored] = self.builder.emit(relax.op.astype(wide, "bfloat16"))
        return self._narrow[stored]

    def adopt_narrow(self, narrow: Any) -> Any:
        """Return a value of float32 whose readers get it from bfloat16."""
        wide = self.builder.emit(relax.op.astype(narrow, "float32"))
        self._narrow[wide] = narrow
        return wide

    def readers(self, name: str) -> list[tuple[str, Any]]:
        """Return the names and calls of a tensor's readers; with what is no call where the function returns it."""
        return self._readers.get(name, [])

    @cached_property
    def _readers(self) -> dict[str, list[tuple[str, Any]]]:
        readers: dict[str, list[tuple[str, Any]]] = {}
        results = [("", self._function.body.body)]
        for name, value in [*((str(var.name), value) for var, value in self._calls.items()), *results]:
            for var in relax.analysis.free_vars(value):
                readers.setdefault(str(var.name), []).append((name, value))
        return readers

    def _widen(self, stored: Any) -> Any:
        # For each reader anew, so that it is fused into it.
        return self.builder.emit(relax.op.astype(self._narrow[stored], "float32")) if stored in self._narrow else stored

    def line(self, value: Any) -> Any:
        """Return a line value as a channels-last image of one row."""
        if value not in self._lines:
            batch, channels, length = value.ty.shape
            turned = self.builder.emit(relax.op.permute_dims(self.plain(value), (0, 2, 1)), TURNED)
            self._add_line(value, self.builder.emit(relax.op.reshape(turned, (batch, 1, length, channels)), TURNED))
        return self._lines[value]

    def elementwise(self, value: Any, dtype: str, step: Callable[[Any], Any]) -> Any:
        """Apply an elementwise step in all current layouts."""
        var = relax.Var(str(value.name), relax.TensorType(value.ty.shape, dtype))
        for layout in (self._plain_values, self._last, self._lines):
            if value in layout:
                layout[var] = self.builder.emit(step(layout[value]))
        return var

    def adopt(self, value: Any) -> Any:
        """Adopt a new value in the model's layout for matched calls."""
        var = self.builder.emit(value)
        self._plain_values[var] = var
        return var

    def is_line(self, value: Any) -> bool:
        """Test if `value` exists in `line`'s form."""
        return isinstance(value, relax.Var) and value in self._lines

    def _add_line(self, value: Any, image: Any) -> None:
        self._lines[value] = image
        # An image of its own right for the kernels that compute with it.
        self._plain_values[image] = image

    def is_last(self, value: Any) -> bool:
        """Test if `value` exists with channels last."""
        return isinstance(value, relax.Var) and value in self._last

    def match(self, call: Any, previous: Rewrite | None = None) -> Any:
        """Return the first rewrite's result, after `previous` if specified."""
        # A rewrite that has changed the call passes it on; from the start it would meet itself again.
        first = 0 if previous is None else self._rewrites.index(previous) + 1
        name = name_of(call)
        for rewrite in self._rewrites[first:]:
            if name in rewrite.operators and (value := rewrite.match(self, call)) is not None:
                return value
        return None

    def match_exactly(self, call: Any, previous: Rewrite) -> Any:
        """Return the result of a rewrite behind `previous` with exact float32."""
        numerics, self.numerics = self.numerics, EXACT
        try:
            return self.match(call, previous)
        finally:
            self.numerics = numerics

    def _bind(self, binding: Any) -> None:
        name = self.name = str(binding.var.name)
        value = self.match(binding.value)
        # No rewrite takes it: it runs in the model's own layout, on operands turned back where they need it.
        if value is None:
            self._plain_values[binding.var] = self.builder.emit(replace(binding.value, self.plain), name)
        elif isinstance(value, ModelLayout):
            self._plain_values[binding.var] = self.builder.emit(value.value, name)
        elif isinstance(value, LineLayout):
            self._add_line(binding.var, self.builder.emit(value.value, name))
        else:
            # Values that are no images have one layout only.
            layout = self._last if is_image(binding.var.ty) else self._plain_values
            layout[binding.var] = self.builder.emit(value, name)
