"""PyTorch: the samples of inputs that its own tests have for each operator (`op_db`), as far as they can be exported.

A module with one operator is exported: the sample's tensors are inputs, all else is constant.  Each is compared with
what PyTorch computes.  Due are the samples that ``torch.export`` exports, that take a tensor and return tensors of
dtypes that NumPy has and of shapes that do not depend on values, and whose operator neither is random nor changes what
it is given.
PyTorch's tests need the package expecttest.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from conformance_trial import Tolerance, attempt, by_pipeline

RUNTIME = "PyTorch"
KINDS = ("float32", "int64", "bool")
"""The first of them that an operator takes is that of its samples."""

TOLERANCE = Tolerance(1e-4, 1e-5)
"""As between PyTorch's own implementations of an operator, in 32 bits."""

# Of each operator's samples, of which some have a thousand: every so many with --quick, besides the first.
QUICK_STRIDE = 400


@functools.cache
def operators() -> dict[str, tuple[str, Any]]:
    """Return kind and description of each operator by name."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    entries: dict[str, tuple[str, Any]] = {}
    for operator in op_db:
        dtypes = operator.supported_dtypes("cpu")
        kind = next((kind for kind in KINDS if getattr(torch, kind) in dtypes), None)
        if kind is not None:
            entries[operator.full_name] = kind, operator
    return entries


def case_names(every: int) -> list[tuple[str, str]]:
    """Return kind and name of each sample, or of the first of each operator and every so many behind it."""
    names = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (kind, _) in operators().items():
            count = sum(1 for _ in samples(name)) if every < QUICK_STRIDE else 1
            names += [(kind, f"{name}#{number}") for number in range(0, count, every)]
    return names


def samples(name: str) -> Any:
    """Return an operator's samples; none where PyTorch cannot make them."""
    import torch

    kind, operator = operators()[name]
    torch.manual_seed(0)
    try:
        yield from operator.sample_inputs("cpu", getattr(torch, kind), requires_grad=False)
    except Exception:  # noqa: BLE001 - samples of some operators need a GPU, or another library
        return


def judge(kind: str, name: str, *, fallback: bool) -> tuple[bool, str]:
    """Return whether a sample is due, and why we do not pass it."""
    del kind
    name, _, number = name.partition("#")
    sample = next(itertools.islice(samples(name), int(number), None), None)
    case = None if sample is None else export(operators()[name][1].op, sample)
    if case is None:
        return False, "not exported"
    program, inputs, expected = case
    data = [(inputs, expected)]
    return True, attempt(lambda: by_pipeline(program, data, TOLERANCE, fallback=fallback))


def export(operator: Any, sample: Any) -> tuple[Any, dict[str, Any], list[Any]] | None:
    """Return a sample's exported program, with inputs by name and expected outputs; None if it is not due."""
    import torch
    from torch.utils import _pytree as pytree

    leaves, structure = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    if not places:
        return None

    class Sample(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *tensors: Any) -> Any:
            values = list(leaves)
            for place, tensor in zip(places, tensors, strict=True):
                values[place] = tensor
            first, arguments, keywords = pytree.tree_unflatten(values, structure)
            return operator(first, *arguments, **keywords)

    tensors = [leaves[place].detach() for place in places]
    used_tensors = [each.clone() for each in tensors]
    try:
        with torch.no_grad():
            program = torch.export.export(Sample(), tuple(each.clone() for each in tensors))
            results = pytree.tree_leaves(Sample()(*used_tensors))
    except Exception:  # noqa: BLE001 - the exporter raises whatever it meets
        return None
    if not are_equal(tensors, used_tensors) or any(map(is_random, program.graph.nodes)):
        return None
    output = next(node for node in program.graph.nodes if node.op == "output")
    values = [getattr(each, "meta", {}).get("val") for each in output.args[0]]
    if not all(isinstance(each, torch.Tensor) and is_fixed(each) for each in values):
        return None
    names = [node.name for node in program.graph.nodes if node.op == "placeholder"][-len(tensors) :]
    inputs = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
    return program, inputs, [each.resolve_neg().numpy() for each in results]


def is_random(node: Any) -> bool:
    """Check whether a node computes random numbers, which attention does not unless it drops values."""
    import torch

    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags and "dropout" not in str(node.target._schema)  # noqa: SLF001


def is_fixed(value: Any) -> bool:
    """Check whether a tensor has a shape that does not depend on values, and a dtype that frames have."""
    return all(isinstance(extent, int) for extent in value.shape) and not value.dtype.is_complex


def are_equal(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Check whether tensors are the same."""
    pairs = zip(first, second, strict=True)
    return all(np.array_equal(one.resolve_neg(), other.resolve_neg(), equal_nan=True) for one, other in pairs)
