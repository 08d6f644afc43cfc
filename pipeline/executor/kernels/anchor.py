"""Anchor: a kernel's operator, with what follows it element by element fused in.

An operator enters TVM's own fusion as a placeholder of the right shape, which names its kernel.  Afterwards the kernel
writes the whole function that the placeholder ended up in.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
import tvm
import tvm_ffi
from tvm import te, tirx

from pipeline.executor.kernels.shared_elements import SharedElements, repeated_buffers
from pipeline.executor.kernels.tiles.packing import PackedLayout
from pipeline.executor.kernels.tir import statements as tir

_KEY = "soc.kernel.placeholder"

# `OpPatternKind.kOutEWiseFusable` in TVM's op_attr_types.h.
_FUSES_ELEMENTWISE = 4
"""TVM's number of operators into which element-wise ones are fused."""


class Placeholder(msgspec.Struct, frozen=True):
    """Identity of a placeholder across TVM's passes, which keep text only.

    Attributes
    ----------
    kernel : str
        Name in the registry.
    form : str
        The kernel's form, as JSON.
    tuned : bool
        Whether tuning found the form.
    """

    kernel: str
    form: str
    tuned: bool = False

    @property
    def label(self) -> str:
        """Name for people: what ``tuned_`` begins with is not the kernel's own choice."""
        return f"tuned_{self.kernel}" if self.tuned else self.kernel


def placeholder(  # noqa: PLR0913, PLR0917 - what a call consists of
    builder: Any,
    kernel: str,
    form: Any,
    operands: Sequence[Any],
    shape: Sequence[int],
    dtype: str = "float32",
    *,
    tuned: bool = False,
) -> Any:
    """Return the call of a placeholder that reads `operands` and makes a tensor of `shape`."""
    identity = Placeholder(kernel, msgspec.json.encode(form).decode(), tuned)
    text = msgspec.json.encode(identity).decode()

    def compute(*tensors: Any) -> Any:
        # Reads every operand, so that TVM passes it on.
        def element(*_: Any) -> Any:
            value = tirx.const(0, dtype)
            for tensor in tensors:
                value = value + tensor(*[tir.number(0)] * len(tensor.shape)).astype(dtype)
            return value

        extents = [tir.number(extent) for extent in shape]
        return te.compute(extents, element, name=identity.label, attrs={_KEY: text})

    return builder.call_te(
        compute, *operands, primfunc_name_hint=identity.label, primfunc_attrs={"op_pattern": _FUSES_ELEMENTWISE}
    )


class FusedGroup:
    """A function with a placeholder.

    Attributes
    ----------
    placeholder : Placeholder
    operands : list of buffers
        Those that the placeholder reads.
    result : buffer
        The last parameter.
    target : buffer
        Where the result is stored: `result`, or the operand that it overwrites.
    """

    def __init__(self, function: Any, blocks: Sequence[Any]) -> None:
        self._function, self._blocks = function, blocks
        anchor = next(block for block in blocks if _KEY in block.annotations)
        self.placeholder = msgspec.json.decode(str(anchor.annotations[_KEY]), type=Placeholder)
        self._sum = anchor.writes[0].source
        # In the placeholder's own order; parameters are in that of first use.
        self.operands = [region.source for region in anchor.reads]
        self.result = self.target = function.params[-1]
        # Also what comes before it, such as a part of a tensor that is added to it.
        self._values = {block.writes[0].source: block for block in blocks if block is not anchor}
        self._repeated = repeated_buffers(self._values)
        # What is fused in may spread each sum over many elements; then the sums are stored, and spread afterwards.
        self._separate = not self._is_elementwise()
        if self._separate:
            self.target = self._sum

    @property
    def params(self) -> list[Any]:
        """The function's parameters, the result last."""
        return list(self._function.params)

    def value(self, total: Any, indices: Sequence[Any]) -> Any:
        """Return the value to store where the placeholder makes `total`."""
        # What is spread afterwards reads the stored sums.
        if self._separate:
            return total
        shared = SharedElements(self._repeated, indices)
        return shared.bindings.around(self._element(self.result, lambda _: total, indices, shared))

    def over(self, operand: int) -> FusedGroup:
        """Return the same with its result stored over a parameter."""
        group = FusedGroup(self._function, self._blocks)
        group.target = self._function.params[operand]
        return group

    def with_form(self, form: Any) -> FusedGroup:
        """Return the same with another form in its placeholder."""
        group = copy.copy(self)
        group.placeholder = msgspec.structs.replace(self.placeholder, form=msgspec.json.encode(form).decode())
        return group

    def overwrites(self, operand: int) -> bool:
        """Return True if the result may take a parameter's place: as large, and read where it is overwritten only."""
        buffer = self._function.params[operand]
        if self._separate or [int(each) for each in buffer.shape] != [int(each) for each in self.result.shape]:
            return False
        if buffer.dtype != self.result.dtype:
            return False
        # Fresh variables: an index that is not the very same one may be another element.
        indices = [tir.variable("index") for _ in buffer.shape]
        matches: list[bool] = []

        def look(load: Any, _: Any) -> Any:
            if load.source.same_as(buffer):
                matches.append(all(a.same_as(b) for a, b in zip(load.indices, indices, strict=True)))
            return load

        zero = tirx.FloatImm("float32", 0.0)
        tvm_ffi.structural_mutate(self.value(zero, indices), [(tvm.ir.TensorLoad, look)])
        return bool(matches) and all(matches)

    def prefetch(self, *indices: Any) -> list[Any]:
        """Return statements that fetch what `value` at these indices will read, and where it is stored."""
        fetches = [tir.fetch(self.target, *indices, write=True)]
        zero = tirx.FloatImm("float32", 0.0)

        def look(load: Any, _: Any) -> Any:
            if (
                not load.source.same_as(self.target)
                and len(load.indices) == len(indices)
                and all(a is b or a.same_as(b) for a, b in zip(load.indices, indices, strict=True))
            ):
                fetches.append(tir.fetch(load.source, *load.indices))
            return load

        tvm_ffi.structural_mutate(self.value(zero, indices), [(tvm.ir.TensorLoad, look)])
        return fetches

    def _is_elementwise(self) -> bool:
        """Return True if each element of the result is made from the sum in its own place."""
        shape, indices = [int(each) for each in self.result.shape], [tir.variable("index") for _ in self.result.shape]
        if shape != [int(each) for each in self._sum.shape]:
            return False
        matches: list[bool] = []

        def total(positions: Sequence[Any]) -> Any:
            matches.extend(
                extent == 1 or position.same_as(index)
                for position, index, extent in zip(positions, indices, shape, strict=True)
            )
            return tirx.FloatImm("float32", 0.0)

        self._element(self.result, total, indices, SharedElements(self._repeated, indices))
        return all(matches)

    def _spread(self) -> Any:
        """Return the loops that make the result of the stored sums."""
        indices: list[Any] = []

        def along(axis: int) -> Any:
            if axis == len(self.result.shape):
                value = self._element(self.result, lambda positions: tir.load(self._sum, *positions), indices)
                return tir.store(self.result, value, *indices)

            def body(index: Any) -> Any:
                indices.append(index)
                statement = along(axis + 1)
                indices.pop()
                return statement

            return tir.loop("spread", int(self.result.shape[axis]), body)

        return along(0)

    def _element(
        self,
        buffer: Any,
        total: Callable[[Sequence[Any]], Any],
        indices: Sequence[Any],
        shared: SharedElements | None = None,
    ) -> Any:
        if buffer.same_as(self._sum):
            return total(indices)
        block = self._values.get(buffer)
        if block is None:
            return tirx.BufferLoad(buffer, list(indices))
        if shared is not None:
            return shared.element(buffer, indices, lambda: self._inline(block, total, indices, shared))
        return self._inline(block, total, indices, shared)

    def _inline(
        self,
        block: Any,
        total: Callable[[Sequence[Any]], Any],
        indices: Sequence[Any],
        shared: SharedElements | None,
    ) -> Any:
        # A block is inlined by putting the kernel's indices in the place of its own axes.
        # That of a number without axes has one of a single element, of which a load says nothing.
        places = indices or [tirx.const(0, axis.var.ty.dtype) for axis in block.iter_vars]
        values = {axis.var: index for axis, index in zip(block.iter_vars, places, strict=True)}

        def variable(var: Any, _: Any) -> Any:
            return values.get(var, var)

        def element(load: Any, mutator: Any) -> Any:
            return self._element(load.source, total, [mutator.mutate(each) for each in load.indices], shared)

        return tvm_ffi.structural_mutate(block.body.value, [(tvm.ir.TensorLoad, element), (tvm.ir.Var, variable)])

    def is_pixelwise(self) -> bool:
        """Return True if everything that is fused in reads its own pixel, or nothing that differs between pixels."""
        # What is spread afterwards has loops of its own, and does not see the kernel's pixels.
        return self._separate or all(self._reads_own_pixel(block) for block in self._values.values())

    def _reads_own_pixel(self, block: Any) -> bool:
        axes = list(block.iter_vars)
        fits = True

        def look(load: Any, _: Any) -> Any:
            nonlocal fits
            fits = fits and _is_own_pixel(list(load.indices), axes)
            return load

        tvm_ffi.structural_mutate(block.body.value, [(tvm.ir.TensorLoad, look)])
        return fits

    def with_body(self, statement: Any) -> Any:
        """Return the function with `statement` as its body."""
        attributes = {str(key): value for key, value in self._function.attrs.items()}
        params = list(self._function.params)
        if self._separate:
            statement = tir.sequence([tirx.AllocBuffer(self._sum), statement, self._spread()])
        # In place: the caller passes the operand that is overwritten, and no result.
        elif not self.target.same_as(self.result):
            params.pop()
        return tirx.PrimFunc(params, statement).with_attr({**attributes, "s_tir": True})


def _is_own_pixel(indices: Sequence[Any], axes: Sequence[Any]) -> bool:
    """Return True if an element is the pixel's own, or the same one for all pixels."""
    if len(indices) != len(axes):
        return not indices or (len(indices) == 1 and indices[0].same_as(axes[-1].var))
    # Also one for all channels of the pixel.
    if all(each.same_as(axis.var) for each, axis in zip(indices[:-1], axes[:-1], strict=True)):
        return isinstance(indices[-1], tirx.IntImm) or indices[-1].same_as(axes[-1].var)
    *outer_pairs, column, channel = zip(indices, axes, strict=True)
    is_fixed = all(isinstance(each, tirx.IntImm) or int(axis.dom.extent) == 1 for each, axis in outer_pairs)
    return is_fixed and isinstance(column[0], tirx.IntImm) and channel[0].same_as(channel[1].var)


def group_of(function: Any) -> FusedGroup | None:
    """Return a function as a group, or None if it has no placeholder."""
    blocks = blocks_of(function)
    if any(_KEY in block.annotations for block in blocks):
        return FusedGroup(function, blocks)
    # What a placeholder computes is no result.
    if not blocks and _KEY in function.script():
        raise ValueError(
            f"the function {function.attrs['global_symbol']} holds a placeholder where none can be replaced"
        )
    return None


def blocks_of(function: Any) -> list[Any]:
    """Return the blocks of a function, in order; each one is the body of its own loops."""
    body = function.body
    if isinstance(body, tvm.s_tir.SBlockRealize):
        body = body.block.body
    statements = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    blocks = []
    for statement in statements:
        node = statement
        while isinstance(node, tirx.For):
            node = node.body
        # A library call or a sort is no block; nothing of it can be moved into a kernel.
        if not isinstance(node, tvm.s_tir.SBlockRealize):
            return []
        blocks.append(node.block)
    return blocks


class Choices(Protocol):
    """Better forms and schedules than the kernels' own, where tuning has found any."""

    def layout(self, form: PackedLayout) -> PackedLayout:
        """Return the layout to take in place of a kernel's own."""

    def kernel(self, name: str, function: Any, group: FusedGroup | None) -> Any | None:
        """Return a function with a schedule, or None for the general one; a group is written by its kernel anyway."""
