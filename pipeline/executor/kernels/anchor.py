"""Anchor: a kernel's operator with its fused elementwise followers.

An operator enters TVM's own fusion as a placeholder of the right shape, which names its kernel.  Afterwards the kernel
writes the whole function that the placeholder ended up in.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import tvm
from tvm import te, tirx

from pipeline.executor.kernels.epilogue import Epilogue
from pipeline.executor.kernels.fused_elements import FusedElements, loads
from pipeline.executor.kernels.tiles.packing import PackedLayout
from pipeline.tvm import statements as tir

_KEY = "soc.kernel.placeholder"

LONG = 120
"""Nodes of an epilogue that is written once per tile."""

# `OpPatternKind.kOutEWiseFusable` in TVM's op_attr_types.h.
_FUSES_ELEMENTWISE = 4
"""TVM's number of operators into which element-wise ones are fused."""


class Placeholder(msgspec.Struct, frozen=True):
    """Identity of a placeholder across TVM's passes: they preserve text only."""

    kernel: str
    """Name in the registry."""
    form: str
    """The kernel's form, as JSON."""
    tuned: bool = False
    """True if tuning found the form."""

    @property
    def label(self) -> str:
        """Display name; ``tuned_`` marks a choice other than the kernel's."""
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
    """Call a placeholder on `operands`, with a result of `shape`."""
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
    """A function with a placeholder and its operands, whose last parameter is the result.

    The result is stored in the buffer `target`: `result`, or the operand that it overwrites.
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
        self._elements = FusedElements(self._values)
        # By the dtype of the placeholder's values.
        self._epilogues: dict[str, Epilogue] = {}
        # What is fused in may spread each sum over many elements; then the sums are stored, and spread afterwards.
        self._separate = not self._is_elementwise()
        if self._separate:
            self.target = self._sum

    @property
    def params(self) -> list[Any]:
        """The function's parameters, the result last."""
        return list(self._function.params)

    @property
    def is_long(self) -> bool:
        """True if what is fused in is too much code for each register."""
        return not self._separate and self._epilogue(str(self._sum.dtype)).size > LONG

    def store(self, total: Any, indices: Sequence[Any]) -> Any:
        """Store the fused result of `total` at the placeholder's indices."""
        # What is spread afterwards reads the stored sums.
        if self._separate:
            return tir.store(self.target, total, *indices)
        return self._epilogue(str(total.ty.dtype)).at(total, indices)

    def _epilogue(self, dtype: str) -> Epilogue:
        if dtype not in self._epilogues:
            total, indices = tirx.Var("total", dtype), [tir.variable("index") for _ in self.result.shape]
            lane = tir.variable("lane")
            with tir.lanes(lane, 1) as registers:
                statements = self._elements.store(self.result, self.target, indices, self._leaf(lambda _: total))
            self._epilogues[dtype] = Epilogue(total, indices, lane, registers, statements)
        return self._epilogues[dtype]

    def _leaf(self, total: Callable[[Sequence[Any]], Any]) -> Callable[[Any, Sequence[Any]], Any]:
        """Return the writer of unfused elements; the placeholder's own are `total`."""
        return lambda buffer, indices: (
            total(indices) if buffer.same_as(self._sum) else tirx.BufferLoad(buffer, list(indices))
        )

    def over(self, operand: int) -> FusedGroup:
        """Return the group with its result over a parameter."""
        group = FusedGroup(self._function, self._blocks)
        group.target = self._function.params[operand]
        return group

    def with_form(self, form: Any) -> FusedGroup:
        """Return the same with another form in its placeholder."""
        group = copy.copy(self)
        group.placeholder = msgspec.structs.replace(self.placeholder, form=msgspec.json.encode(form).decode())
        return group

    def overwrites(self, operand: int) -> bool:
        """Test if the result may overwrite a parameter, elementwise of equal size."""
        buffer = self._function.params[operand]
        if self._separate or [int(extent) for extent in buffer.shape] != [int(extent) for extent in self.result.shape]:
            return False
        if buffer.dtype != self.result.dtype:
            return False
        epilogue = self._epilogue(str(self._sum.dtype))
        positions = [load.indices for load in epilogue.loads if load.source.same_as(buffer)]
        # An index that is not the very same one may be another element.
        return bool(positions) and all(map(epilogue.is_at, positions))

    def prefetch(self, *indices: Any) -> list[Any]:
        """Prefetch the reads and the target of `store`."""
        sources = () if self._separate else self._epilogue(str(self._sum.dtype)).sources
        reads = [tir.fetch(source, *indices) for source in sources if not source.same_as(self.target)]
        return [tir.fetch(self.target, *indices, write=True), *reads]

    def _is_elementwise(self) -> bool:
        """Test if every result element depends on its own sum only."""
        shape = [int(extent) for extent in self.result.shape]
        indices = [tir.variable("index") for _ in shape]
        if shape != [int(extent) for extent in self._sum.shape]:
            return False
        matches: list[bool] = []

        def total(positions: Sequence[Any]) -> Any:
            matches.extend(
                extent == 1 or position.same_as(index)
                for position, index, extent in zip(positions, indices, shape, strict=True)
            )
            return tirx.const(0, str(self._sum.dtype))

        self._elements.store(self.result, self.result, indices, self._leaf(total))
        return all(matches)

    def _spread(self) -> Any:
        """Return the loops from stored sums to the result."""
        indices: list[Any] = []

        def along(axis: int) -> Any:
            if axis == len(self.result.shape):
                return tir.sequence(self._elements.store(self.result, self.result, indices))

            def body(index: Any) -> Any:
                indices.append(index)
                statement = along(axis + 1)
                indices.pop()
                return statement

            return tir.loop("spread", int(self.result.shape[axis]), body)

        return along(0)

    def is_pixelwise(self) -> bool:
        """Test if all fused reads are per pixel or pixel-independent."""
        # What is spread afterwards has loops of its own, and does not see the kernel's pixels.
        return self._separate or all(self._reads_own_pixel(block) for block in self._values.values())

    def _reads_own_pixel(self, block: Any) -> bool:
        axes = list(block.iter_vars)
        return all(_is_own_pixel(list(load.indices), axes) for load in loads(block.body.value))

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
    """Test if an element is the pixel's own or common to all."""
    if len(indices) != len(axes):
        return not indices or (len(indices) == 1 and indices[0].same_as(axes[-1].var))
    # Also one for all channels of the pixel.
    if all(index.same_as(axis.var) for index, axis in zip(indices[:-1], axes[:-1], strict=True)):
        return isinstance(indices[-1], tirx.IntImm) or indices[-1].same_as(axes[-1].var)
    *outer_pairs, column, channel = zip(indices, axes, strict=True)
    is_fixed = all(isinstance(index, tirx.IntImm) or int(axis.dom.extent) == 1 for index, axis in outer_pairs)
    return is_fixed and isinstance(column[0], tirx.IntImm) and channel[0].same_as(channel[1].var)


def group_of(function: Any) -> FusedGroup | None:
    """Return a function as a group; None without placeholder."""
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
    """Return a function's blocks in order, as bodies of their loops."""
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
    """Tuned forms and schedules, in place of the kernels' own."""

    def layout(self, form: PackedLayout) -> PackedLayout:
        """Return the tuned layout of a kernel."""

    def kernel(self, name: str, function: Any, group: FusedGroup | None) -> Any | None:
        """Return a scheduled function, None for the general schedule."""

    def rename(self, names: Mapping[str, str]) -> None:
        """Take the names that functions have in the stage."""
