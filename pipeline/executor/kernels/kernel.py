"""Kernel: CPU code of one operator with fused followers, one per file."""

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
    """Rewrite to a placeholder; its loops follow after TVM's fusion."""

    name: ClassVar[str]
    """Identity of its placeholders, and the start of its functions' names."""
    form: ClassVar[type]
    """Dataclass of sizes that `match` fills from a call and `write` reads. It is kept as JSON in the placeholder, so
    that equal calls share one function."""
    effort: ClassVar[int] = 1
    """Times that an operation takes longer than in a convolution."""

    @abstractmethod
    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Return a call's placeholder, or None for the next kernel."""

    @abstractmethod
    def write(self, group: FusedGroup, form: FormT, cpu: Microarchitecture, tasks: int) -> Any:
        """Write the whole computation, divided between cores."""

    @abstractmethod
    def operations(self, form: FormT) -> int:
        """Count floating-point operations; roughly, where they are not multiplications."""

    def writes_once(self, group: FusedGroup, form: FormT, cpu: Microarchitecture, tasks: int) -> bool:  # noqa: ARG002
        """Test if elements are computed once, so may overwrite an operand."""
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
        """Call a placeholder on `operands`, with a result of `shape`."""
        return anchor.placeholder(builder, cls.name, form, operands, shape, dtype, tuned=tuned)


def epilogue_store(group: FusedGroup) -> Callable[..., Any]:
    """Return the writer of fused stores."""

    def store(value: Any, *indices: Any) -> Any:
        # What is fused in is computed while the value is in a register.
        return group.store(value, indices)

    return store
