"""Which operators the compiler fuses into one kernel; a cut never separates them.

The rules follow the post-dominator scheme of TVM's FuseOps: an operator joins the operator through which
all its results pass, if everything on the way is computed element by element.  They merge at least what
TVM merges, so a group may be larger than a kernel, but never smaller.  What one operator of the model was
taken apart into stays together as well: users know it as one, and a kernel may be written for all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

# TVM does not fuse more operators than this into one function.
LARGEST_GROUP = 256

_ELEMENTWISE = {
    "abs", "acos", "acosh", "add", "asin", "asinh", "astype", "atan", "atanh", "bitwise_and", "bitwise_not",
    "bitwise_or", "bitwise_xor", "ceil", "clip", "cos", "cosh", "divide", "equal", "erf", "exp",
    "floor", "floor_divide", "floor_mod", "greater", "greater_equal", "isfinite", "isinf", "isnan", "left_shift",
    "less", "less_equal", "log", "logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "mod",
    "multiply", "negative", "not_equal", "power", "prelu", "right_shift", "round", "rsqrt", "sigmoid", "sign", "sin",
    "sinh", "sqrt", "square", "subtract", "tan", "tanh", "trunc", "where", "relu", "relu6", "leakyrelu", "gelu",
    "gelu_tanh", "silu", "softplus", "selu", "quantize", "dequantize",
}  # fmt: skip
_BROADCAST = {"broadcast_to", "expand_dims", "meshgrid", "one_hot", "squeeze", "stack"}
_INJECTIVE = {
    "concat", "flatten", "flip", "full", "full_like", "gather_elements", "layout_transform", "mirror_pad", "ones",
    "ones_like", "pad", "permute_dims", "repeat", "replicate_pad", "reshape", "resize1d", "resize2d", "resize3d",
    "scatter_elements", "split", "strided_slice", "take", "tile", "tril", "triu", "zeros", "zeros_like",
}  # fmt: skip
_REDUCTIONS = {"sum", "max", "min", "prod"}
_ANCHORS = {
    "conv1d", "conv2d", "conv3d", "conv1d_transpose", "conv2d_transpose", "conv3d_transpose", "matmul", "einsum",
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool1d", "max_pool2d", "max_pool3d", "adaptive_avg_pool1d",
    "adaptive_avg_pool2d", "adaptive_avg_pool3d", "softmax", "log_softmax", "layer_norm", "group_norm", "instance_norm",
    "rms_norm", "batch_norm", "attention", "mean", "std", "variance", "argmax", "argmin",
}  # fmt: skip


_FAMILIES = {
    "elementwise": _ELEMENTWISE,
    "broadcast": _BROADCAST,
    "injective": _INJECTIVE,
    "reduction": _REDUCTIONS,
    "anchor": _ANCHORS,
}


def family(kind: str) -> str:
    """Return how an operator of this kind takes part in fusion: ``"elementwise"``, ``"broadcast"``, ..., ``"opaque"``.

    An anchor computes each of its results from many values; what follows it element by element joins it.
    """
    return next((name for name, kinds in _FAMILIES.items() if kind in kinds), "opaque")


def fuse(
    kinds: Sequence[str],
    consumers: Sequence[Sequence[int]],
    escapes: Sequence[bool],
    parts: Sequence[bool] | None = None,
) -> list[int]:
    """Group operators given in topological order.

    Parameters
    ----------
    kinds : sequence of str
        Kind of each operator, such as ``"conv2d"``.
    consumers : sequence of sequences of int
        For each operator, the operators that read its results.
    escapes : sequence of bool
        Whether an operator makes a result of the whole model.
    parts : sequence of bool, optional
        Whether an operator is a part of one of the model's operators, and not the last; by default none is.

    Returns
    -------
    list of int
        For each operator the index of its group's last operator.  Groups are convex, and ordering them by
        that index is a topological order.
    """
    families = [family(kind) for kind in kinds]
    dominators = post_dominators(consumers, escapes)
    inside = parts or [False] * len(kinds)
    for operator, kind in enumerate(kinds):
        # A reader's own one; what is quantised in front of it is to travel as bytes.
        if kind == "dequantize" and inside[operator] and families[consumers[operator][0]] != "elementwise":
            families[operator] = "opaque"
    groups = _Groups(families)
    for operator, dominator in enumerate(dominators):
        if dominator is None:
            continue
        if inside[operator]:
            between = _between(operator, dominator, consumers, inside.__getitem__)
        elif groups.may_join(operator, dominator):
            between = _between(operator, dominator, consumers, groups.passes(operator))
        else:
            continue
        if between is not None:
            groups.join([operator, *between, dominator])
    return [groups.last(operator) for operator in range(len(kinds))]


def post_dominators(consumers: Sequence[Sequence[int]], escapes: Sequence[bool]) -> list[int | None]:
    """Return for each operator the nearest later one that all its results pass through; None stands for the exit."""
    result: list[int | None] = [None] * len(consumers)
    depth = [0] * len(consumers)
    for operator in range(len(consumers) - 1, -1, -1):
        if escapes[operator] or not consumers[operator]:
            continue
        common: int | None = consumers[operator][0]
        for other in consumers[operator][1:]:
            common = _meet(common, other, result, depth)
        result[operator] = common
        depth[operator] = 0 if common is None else depth[common] + 1
    return result


def _meet(first: int | None, second: int | None, parents: Sequence[int | None], depth: Sequence[int]) -> int | None:
    while first != second:
        if first is None or second is None:
            return None
        if depth[first] >= depth[second]:
            first, second = second, first
        # `second` is at least as deep.
        second = parents[second]
    return first


def _between(
    start: int, end: int, consumers: Sequence[Sequence[int]], allowed: Callable[[int], bool]
) -> list[int] | None:
    """Return the operators on all ways from `start` to `end`, or None if one of them is not allowed there."""
    found: list[int] = []
    seen, waiting = {end}, [start]
    while waiting:
        for operator in consumers[waiting.pop()]:
            if operator in seen:
                continue
            if not allowed(operator) or len(seen) > LARGEST_GROUP:
                return None
            seen.add(operator)
            found.append(operator)
            waiting.append(operator)
    return found


class _Groups:
    """Sets of operators that merge; each knows its size, its last operator, and whether it has an anchor."""

    def __init__(self, families: Sequence[str]) -> None:
        self._families = families
        self._parents = list(range(len(families)))
        self._sizes = [1] * len(families)
        self._last = list(range(len(families)))
        self._anchored = [each == "anchor" for each in families]

    def _root(self, operator: int) -> int:
        while self._parents[operator] != operator:
            self._parents[operator] = self._parents[self._parents[operator]]
            operator = self._parents[operator]
        return operator

    def last(self, operator: int) -> int:
        return self._last[self._root(operator)]

    def allowed_between(self, operator: int) -> frozenset[str]:
        plain = not self._anchored[self._root(operator)]
        return frozenset({"elementwise", "broadcast", "injective"} if plain else {"elementwise"})

    def passes(self, operator: int) -> Callable[[int], bool]:
        """Return what tells whether another operator may lie between this one and the one it joins."""
        allowed = self.allowed_between(operator)
        return lambda each: self._families[each] in allowed

    def may_join(self, operator: int, dominator: int) -> bool:
        own, target = self._families[operator], self._families[dominator]
        if own in ("opaque", "reduction"):
            return False
        if target == "reduction":
            return own in ("elementwise", "broadcast") and not self._anchored[self._root(operator)]
        return target in self.allowed_between(operator)

    def join(self, operators: Sequence[int]) -> None:
        roots = {self._root(operator) for operator in operators}
        if sum(self._sizes[root] for root in roots) > LARGEST_GROUP:
            return
        first, *others = roots
        for other in others:
            self._parents[other] = first
            self._sizes[first] += self._sizes[other]
            self._last[first] = max(self._last[first], self._last[other])
            self._anchored[first] |= self._anchored[other]
