"""Estimates of a network's kernels: their loops in TIR say how often those of the machine code run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pipeline.tvm.access import tvm
from tools.arm import analyser, epilogues
from tools.arm.loops import Loop
from tools.arm.networks import CompiledNetwork
from tools.arm.slices import products_part

_PRODUCTS = {"sdot": 4, "usdot": 4, "vpdpbusd": 4, "smull": 1, "smmla": 8, "usmmla": 8}
"""Products that an intrinsic adds up in each lane."""

# LLVM may write out so many turns of a loop as one.
_UNROLLED = 32


@dataclass
class LoopNode:
    """Loop in TIR.

    Attributes
    ----------
    extent : int
        Turns.
    parent : LoopNode, optional
    macs : int
        Multiply-adds of one turn, outside of inner loops.
    sums : int
        Buffers that these are added up in, each of which is a register.
    stores : bool
        Whether results are stored in a turn, outside of inner loops.
    transforms : int
        Multiply-adds of vectors that are no sums, such as Winograd's transforms, of one turn.
    children : list of LoopNode
    """

    extent: int = 1
    parent: LoopNode | None = None
    macs: int = 0
    sums: int = 0
    stores: bool = False
    transforms: int = 0
    children: list[LoopNode] = field(default_factory=list)

    @property
    def turn_macs(self) -> int:
        """Multiply-adds of one turn."""
        return self.macs + sum(child.extent * child.turn_macs for child in self.children)

    @property
    def executions(self) -> int:
        """Turns of all runs together."""
        return self.extent * (self.parent.executions if self.parent else 1)

    @property
    def tile(self) -> LoopNode | None:
        """The smallest loop with this one inside, or itself, that stores results."""
        node: LoopNode | None = self
        while node is not None and not node.stores:
            node = node.parent
        return node

    def nodes(self) -> Iterator[LoopNode]:
        """Yield this loop and all inside."""
        yield self
        for child in self.children:
            yield from child.nodes()


class LoopUse(NamedTuple):
    """Machine loop in one frame.

    Attributes
    ----------
    function : str
    loop : Loop
    turns : float
    turn_cycles : float
        Estimated cycles of one turn.
    epilogue_cycles : float
        Those of all that is done with the sums.
    spills : int
        Loads and stores of vectors on the stack, those of the epilogue too.
    useful : float
        Multiply-adds of the model for each one of the loop.
    """

    function: str
    loop: Loop
    turns: float
    turn_cycles: float
    epilogue_cycles: float = 0.0
    spills: int = 0
    useful: float = 1.0

    @property
    def macs(self) -> float:
        """Multiply-adds."""
        return self.turns * self.loop.macs * self.useful

    @property
    def cycles(self) -> float:
        """Estimated cycles."""
        return self.turns * self.turn_cycles


class Epilogue(NamedTuple):
    """Code that takes a tile's sums: cycles, whether it is in the loop of the products, with its cycles, and spills."""

    cycles: float
    in_loop: bool
    spills: int


class NetworkEstimate(NamedTuple):
    """Loops of a network in one frame, and the share of its multiply-adds that they are."""

    uses: list[LoopUse]
    coverage: float


def estimate(network: CompiledNetwork, cpu: str, triple: str = "aarch64-linux-gnu") -> NetworkEstimate:
    """Return the estimate of one frame."""
    # An epilogue is in the loop of its tile where all terms are written out, and outside of the loop elsewhere.
    whole_loops = analyser.loops_of(network.library)
    loops = [products_part(loop) for loop in whole_loops]
    cycles = analyser.cycles(loops, cpu, triple)
    epilogues = _epilogues(network, whole_loops, loops, cpu, triple)
    uses, total = list[LoopUse](), 0.0
    for name, operations in network.operations.items():
        root = loop_tree(network.functions[name])
        # Such as a maximum, which multiplies nothing, or what depends on constants alone.
        if not root.turn_macs * network.calls[name]:
            continue
        # TVM puts a function's work in one of this name, beside the one that checks arguments.
        own = [(loop, turn) for loop, turn in zip(loops, cycles, strict=True) if loop.function == f"{name}_compute_"]
        macs = operations / 2 * network.calls[name]
        total += macs
        # Zeros that fill vectors are multiplied too, and rows where chunks overlap twice.
        useful = macs / (root.turn_macs * network.calls[name])
        for leaf in (node for node in root.nodes() if node.macs):
            leaf_macs = leaf.macs * leaf.executions * network.calls[name]
            tiles = leaf.tile.executions * network.calls[name] if leaf.tile else 0
            leaf_uses = _uses(name, leaf_macs, match(leaf, own, lambda pair: pair[0]), epilogues, tiles)
            uses += [use._replace(useful=useful) for use in leaf_uses]
        if "winograd" in name:
            uses += _transform_uses(name, root, own, network.calls[name])
    return NetworkEstimate(uses, sum(use.macs for use in uses) / max(total, 1))


def _uses(
    name: str, macs: float, loops: Sequence[tuple[Loop, float | None]], epilogues: Mapping[int, Epilogue], tiles: float
) -> list[LoopUse]:
    known = [(loop, cycles) for loop, cycles in loops if cycles]
    uses = list[LoopUse]()
    for loop, cycles in known:
        # Loops of one size, such as those of a whole and of a partial block, cannot be told apart: each takes its part.
        turns = macs / len(known) / loop.macs
        # What is stored in the loop itself costs what the products alone do not take.
        around, own, spills = epilogues.get(loop.start, Epilogue(0.0, in_loop=False, spills=0))
        epilogue = turns * (around - cycles) if own else around * tiles / len(known)
        uses.append(LoopUse(name, loop, turns, cycles, epilogue, spills if own else spills + loop.spills))
    return uses


def _transform_uses(
    name: str, root: LoopNode, own: Sequence[tuple[Loop, float | None]], calls: int
) -> Iterator[LoopUse]:
    """Yield the loops of Winograd's transforms, whose multiply-adds are none of the model's."""
    turns = dict[int, int]()
    for node in root.nodes():
        # Tiles inside of the image and at its border have loops of their own, of which one runs.
        turns[node.transforms] = max(turns.get(node.transforms, 0), node.executions)
    for macs, count in turns.items():
        loops = [(loop, cycles) for loop, cycles in own if loop.macs == macs and cycles]
        for loop, cycles in loops:
            yield LoopUse(name, loop, count * calls / len(loops), cycles, spills=loop.spills, useful=0.0)


def _epilogues(
    network: CompiledNetwork, whole_loops: Sequence[Loop], parts: Sequence[Loop], cpu: str, triple: str
) -> dict[int, Epilogue]:
    """Return what is done with one tile's sums, by the address of the innermost loop's products."""
    functions = epilogues.functions_of(network.library)
    codes = [
        (part, whole if part is not whole else epilogues.epilogue(functions[whole.function], whole))
        for whole, part in zip(whole_loops, parts, strict=True)
    ]
    known = [(part, code) for part, code in codes if code is not None]
    cycles = analyser.cycles([code for _, code in known], cpu, triple)
    return {
        part.start: Epilogue(
            estimate, code.start <= part.start <= part.end <= code.end and code.macs == part.macs, code.spills
        )
        for (part, code), estimate in zip(known, cycles, strict=True)
        if estimate
    }


def match(leaf: LoopNode, candidates: Sequence[Any], loop_of: Callable[[Any], Loop]) -> list[Any]:
    """Return the machine loops that a loop in TIR became; none if there is no fitting one.

    They multiply as often in a turn, or several times as often where turns were written out, if possible in as many
    sums.  If there is none, it was written out as a whole, and the loop around it is looked for.
    """
    node: LoopNode | None = leaf
    while node is not None:
        turns = [node.turn_macs * count for count in range(1, min(node.extent, _UNROLLED) + 1)]
        fitting = sorted(
            (each for each in candidates if loop_of(each).macs in turns), key=lambda each: loop_of(each).macs
        )
        fitting = [each for each in fitting if loop_of(each).sums == leaf.sums] or fitting
        if fitting:
            return [each for each in fitting if loop_of(each).macs == loop_of(fitting[0]).macs]
        node = node.parent
    return []


def loop_tree(function: Any) -> LoopNode:
    """Return the loops of a function in TIR, below a node for its body."""
    import tvm_ffi
    from tvm import tirx
    from tvm.tirx import ForKind

    root = node = LoopNode()
    lanes, buffers, allocated, firsts = 1, list[Any](), list[Any](), dict[Any, int]()

    def loop(statement: Any, visitor: Any) -> None:
        nonlocal node, lanes
        extent = int(statement.extent) if isinstance(statement.extent, tirx.IntImm) else 1
        outer, outer_lanes = node, lanes
        if statement.kind in {ForKind.VECTORIZED, ForKind.UNROLLED}:
            lanes *= extent
        else:
            node = LoopNode(extent, outer)
            outer.children.append(node)
        visitor.default_visit(statement)
        node, lanes = outer, outer_lanes

    def bind(statement: Any, _: Any) -> None:
        # Whole numbers are indices.
        if str(statement.value.ty.dtype).startswith("float"):
            node.transforms += lanes * _macs(statement.value)

    def store(statement: Any, _: Any) -> None:
        macs = lanes * _macs(statement.value)
        if isinstance(statement.value, tirx.Mul):
            firsts[statement.buffer] = lanes * _lanes(statement.value)
        elif macs:
            # A product that others are added to is one of them.
            macs += firsts.pop(statement.buffer, 0)
        node.macs += macs
        node.stores |= statement.buffer not in allocated
        if macs and statement.buffer not in buffers:
            buffers.append(statement.buffer)
            node.sums += 1

    tvm_ffi.structural_visit(
        function.body,
        [
            (tirx.AllocBuffer, lambda statement, _: allocated.append(statement.buffer)),
            (tirx.Bind, bind),
            (tirx.For, loop),
            (tirx.BufferStore, store),
        ],
    )
    return root


def _macs(value: Any) -> int:
    """Return the products that a value adds up, of all its lanes."""
    from tvm import tirx

    if isinstance(value, tirx.Cast):
        # Products of fewer bits, or their sum.
        return _lanes(value) if isinstance(value.value, tirx.Mul) else _macs(value.value)
    if isinstance(value, tirx.Add):
        return sum(_lanes(each) if isinstance(each, tirx.Mul) else _macs(each) for each in (value.a, value.b))
    name = _intrinsic(value)
    if "saddlp" in name:
        return sum(map(_macs, value.args[1:]))
    products = _PRODUCTS.get(next((part for part in name.split(".") if part in _PRODUCTS), ""), 0)
    # What they are added to may be a sum of such products itself.
    return products * _lanes(value) + _macs(value.args[1]) if products else 0


def _intrinsic(value: Any) -> str:
    """Return LLVM's name of what an expression calls; empty if it calls nothing."""
    from tvm.target import codegen

    if not isinstance(value, tvm.ir.Call) or not str(value.op.name).startswith("tirx.call_llvm"):
        return ""
    return str(codegen.llvm_get_intrinsic_name(int(value.args[0])))


def _lanes(value: Any) -> int:
    lanes = str(value.ty.dtype).partition("x")[2]
    return int(lanes) if lanes else 1
