"""Marks: what each function of an optimised module says about the rule that wrote it."""

from __future__ import annotations

from typing import Any

KERNEL = "soc.kernel"
"""Attribute of functions that are ready for TVM's code generator: the rule, and how many operations it stands for."""

GENERAL = "general 0"
"""Its value for what has no rule of its own."""

TUNED = "tuned 0"
"""Its value for what has none, but was tuned."""


def kernels(module: Any) -> dict[str, tuple[str, int]]:
    """Return the rule and the floating-point operations of each function of an optimised module.

    ``"general"`` stands for everything without a rule of its own, whose operations are not counted.
    """
    found = {}
    for name, function in module.functions.items():
        if function.attrs and KERNEL in function.attrs:
            rule, _, operations = str(function.attrs[KERNEL]).partition(" ")
            found[str(name.name_hint)] = rule, int(operations)
    return found
