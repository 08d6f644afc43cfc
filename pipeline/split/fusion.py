"""Fusion: operators the compiler fuses into a kernel, never cut apart.

The rules follow the post-dominator scheme of TVM's FuseOps: an operator joins the operator through which all its
results pass, if everything on the way is computed element by element.  They merge at least what TVM merges, so a group
may be larger than a kernel, but never smaller.  The parts of an operator of the model that was taken apart stay
together as well: users know it as one, and a kernel may be written for all of it.

A group ends where sums become bytes that are then computed with as real numbers, or summed up by the model's next
operator, although TVM may go on: bytes are the cheapest to send, and an accelerator that has no sigmoid takes the
convolution in front of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipeline.model.operators import operator_kind

# TVM does not fuse more operators than this into one function.
LARGEST_GROUP = 256

_WITH_BYTES = {"add", "clip", "maximum", "minimum", "quantize", "relu", "relu6", "subtract"}
"""Operators that such an accelerator computes together with neighbouring sums."""

_SUMMING = _WITH_BYTES | {"conv2d", "matmul"}

_LAST = "last"
"""Operators that join as if elementwise, and end their group."""


def fuse(
    kinds: Sequence[str],
    consumers: Sequence[Sequence[int]],
    escapes: Sequence[bool],
    parts: Sequence[bool] | None = None,
) -> list[int]:
    """Group operators given in topological order.

    Each operator has a kind, such as ``"conv2d"``, and consumers, which read its results. One that `escapes` makes a
    result of the whole model; `parts` flags those that are a part of one of the model's operators, and not the last.
    Returns the index of the last operator of each operator's group. Groups are convex, and ordering them by that index
    is a topological order.
    """
    dominators = post_dominators(consumers, escapes)
    are_parts = parts or [False] * len(kinds)
    patterns = _patterns(kinds, consumers, are_parts)
    groups = _FusionGroups(patterns)
    for operator, dominator in enumerate(dominators):
        if dominator is None:
            continue
        if are_parts[operator]:
            path = _operators_between(operator, dominator, consumers, are_parts.__getitem__)
        elif groups.may_join(operator, dominator):
            path = _operators_between(operator, dominator, consumers, groups.passes(operator))
        else:
            continue
        if path is not None:
            groups.join([operator, *path, dominator])
    return [groups.last(operator) for operator in range(len(kinds))]


def _patterns(kinds: Sequence[str], consumers: Sequence[Sequence[int]], are_parts: Sequence[bool]) -> list[str]:
    """Return each operator's pattern, neighbours considered."""
    patterns = [operator_kind(kind).pattern for kind in kinds]
    summing = {reader for kind, readers in zip(kinds, consumers, strict=True) if kind in _SUMMING for reader in readers}
    for operator, kind in enumerate(kinds):
        if are_parts[operator] and _begins_group(operator, kinds, consumers, are_parts):
            patterns[operator] = "opaque"
        elif kind == "quantize" and not are_parts[operator] and operator in summing:
            patterns[operator] = _LAST if _leaves_bytes(operator, kinds, consumers) else patterns[operator]
    return patterns


def _begins_group(
    operator: int, kinds: Sequence[str], consumers: Sequence[Sequence[int]], are_parts: Sequence[bool]
) -> bool:
    """Return True if a part widens bytes: these travel instead."""
    if kinds[operator] == "dequantize":
        return operator_kind(kinds[consumers[operator][0]]).pattern != "elementwise"
    # All operators of whole numbers in a row would be one group, if they fused where the next one widens its bytes.
    return kinds[operator] == "astype" and _leads_to_sums(operator, kinds, consumers, are_parts)


def _leads_to_sums(
    operator: int, kinds: Sequence[str], consumers: Sequence[Sequence[int]], are_parts: Sequence[bool]
) -> bool:
    """Return True if a part leads to its operator's sums."""
    while are_parts[operator] and len(consumers[operator]) == 1:
        (operator,) = consumers[operator]
        if kinds[operator] not in ("astype", "pad", "subtract"):
            return operator_kind(kinds[operator]).pattern == "anchor"
    return False


def _leaves_bytes(operator: int, kinds: Sequence[str], consumers: Sequence[Sequence[int]]) -> bool:
    """Return True if readers need more than byte arithmetic. An accelerator for bytes may lack it."""
    groups = [consumers[reader] for reader in consumers[operator] if kinds[reader] == "dequantize"]
    return any(not group or not _WITH_BYTES.issuperset(kinds[reader] for reader in group) for group in groups)


def post_dominators(consumers: Sequence[Sequence[int]], escapes: Sequence[bool]) -> list[int | None]:
    """Return each operator's next post-dominator; None is the exit."""
    result: list[int | None] = [None] * len(consumers)
    depth = [0] * len(consumers)
    # Backwards, as each one's dominator follows from those of its readers.
    for operator in range(len(consumers) - 1, -1, -1):
        # Nothing joins past a result of the model: the kernel would have to write it in its middle.
        if escapes[operator] or not consumers[operator]:
            continue
        common: int | None = consumers[operator][0]
        for reader in consumers[operator][1:]:
            common = _meet(common, reader, result, depth)
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


def _operators_between(
    start: int, end: int, consumers: Sequence[Sequence[int]], may_lie: Callable[[int], bool]
) -> list[int] | None:
    """Return the operators on paths from `start` to `end`. The result is None if one of them may not lie there."""
    path: list[int] = []
    reached_operators, pending = {end}, [start]
    while pending:
        for operator in consumers[pending.pop()]:
            if operator in reached_operators:
                continue
            if not may_lie(operator) or len(reached_operators) > LARGEST_GROUP:
                return None
            reached_operators.add(operator)
            path.append(operator)
            pending.append(operator)
    return path


class _FusionGroups:
    """Merged sets of operators, with size, last operator and anchor."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = patterns
        self._parents = list(range(len(patterns)))
        self._sizes = [1] * len(patterns)
        self._last = list(range(len(patterns)))
        self._has_anchor = [pattern == "anchor" for pattern in patterns]

    def _root(self, operator: int) -> int:
        while self._parents[operator] != operator:
            # Path halving, which keeps chains of unions short.
            self._parents[operator] = self._parents[self._parents[operator]]
            operator = self._parents[operator]
        return operator

    def last(self, operator: int) -> int:
        return self._last[self._root(operator)]

    def patterns_between(self, operator: int) -> frozenset[str]:
        # Behind a convolution, TVM takes only what computes each element from the one at its place.
        if self._has_anchor[self._root(operator)]:
            return frozenset({"elementwise"})
        return frozenset({"elementwise", "broadcast", "injective"})

    def passes(self, operator: int) -> Callable[[int], bool]:
        """Return a test of operators between this one and its partner."""
        patterns = self.patterns_between(operator)
        return lambda operator: self._patterns[operator] in patterns

    def may_join(self, operator: int, dominator: int) -> bool:
        source, target = self._patterns[operator], self._patterns[dominator]
        if source in ("opaque", "reduction", _LAST):
            return False
        if target == _LAST:
            return True
        if target == "reduction":
            return source in ("elementwise", "broadcast") and not self._has_anchor[self._root(operator)]
        return target in self.patterns_between(operator)

    def join(self, operators: Sequence[int]) -> None:
        roots = {self._root(operator) for operator in operators}
        # All or nothing: a part of a path in the group would leave a way out of it and back.
        if sum(self._sizes[root] for root in roots) > LARGEST_GROUP:
            return
        target, *absorbed_roots = roots
        for root in absorbed_roots:
            self._parents[root] = target
            self._sizes[target] += self._sizes[root]
            self._last[target] = max(self._last[target], self._last[root])
            self._has_anchor[target] |= self._has_anchor[root]
