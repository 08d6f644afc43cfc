"""Kernel: the code of one operator for CPUs, with what is fused to it; one file each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from pipeline.executor.kernels import anchor
from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.layout.rewriter import Rewrite, Rewriter
from pipeline.executor.kernels.microarchitecture import Microarchitecture

MEMORY_BOUND = 8
"""Effort where each element comes from memory for a few operations."""

FormT = TypeVar("FormT")


class Kernel(Rewrite, Generic[FormT]):
    """Rewrite that leaves a placeholder, and writes its loops once TVM has fused other operators to it.

    Attributes
    ----------
    name : str
        Identity of its placeholders, and the start of its functions' names.
    form : type
        What `match` learns of a call, and `write` reads: a dataclass of sizes, kept as JSON in the placeholder, so
        that equal calls share one function.
    effort : int
        Times that an operation takes longer than in a convolution.
    """

    name: ClassVar[str]
    form: ClassVar[type]
    effort: ClassVar[int] = 1

    @abstractmethod
    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Return a placeholder for a call, or None to leave it to the next kernel."""

    @abstractmethod
    def write(self, group: FusedGroup, form: FormT, cpu: Microarchitecture, tasks: int) -> Any:
        """Return the statement of the whole computation, divided between so many cores."""

    @abstractmethod
    def operations(self, form: FormT) -> int:
        """Count floating-point operations; roughly, where they are not multiplications."""

    def writes_once(self, group: FusedGroup, form: FormT, cpu: Microarchitecture, tasks: int) -> bool:  # noqa: ARG002
        """Return whether each element is known to be computed once only, so that it may overwrite an operand."""
        # Unless a kernel knows better: an operand would be gone when an element is computed again.
        return False

    @classmethod
    def placeholder(  # noqa: PLR0913 - what a call consists of
        cls,
        builder: Any,
        form: FormT,
        operands: Sequence[Any],
        shape: Sequence[int],
        dtype: str = "float32",
        *,
        tuned: bool = False,
    ) -> Any:
        """Return the call of a placeholder that reads `operands` and makes a tensor of `shape`."""
        return anchor.placeholder(builder, cls.name, form, operands, shape, dtype, tuned=tuned)


def epilogue_store(group: FusedGroup) -> Callable[..., Any]:
    """Return the writer of statements that store a value at its indices, with the fused operators."""

    def store(value: Any, *indices: Any) -> Any:
        # What is fused in is computed while the value is in a register.
        return group.store(value, indices)

    return store
