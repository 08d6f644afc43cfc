"""Denormals: floats below the smallest normal one, with which processors compute up to a hundred times slower."""

from __future__ import annotations

import contextlib
import ctypes
import platform
import sys

_WORDS = 8
"""Size of the C library's `fenv_t`, in 32-bit words."""

# Index of the control register in it, and its bits: x86's MXCSR takes denormal results (15) and operands (6) for zeros,
# 64-bit Arm's FPCR both (24).  float16 keeps its denormals, which are ordinary numbers.
_CONTROL = {"x86_64": (7, 1 << 15 | 1 << 6), "aarch64": (0, 1 << 24)}


def flush_to_zero() -> None:
    """Take denormals for zeros in the calling thread and in threads it starts.

    Trained weights have many of them, and layers that fade out.  Elsewhere than on Linux nothing changes.
    """
    if sys.platform != "linux" or platform.machine() not in _CONTROL:
        return
    word, bits = _CONTROL[platform.machine()]
    environment = (ctypes.c_uint32 * _WORDS)()
    # A C library without these calls leaves everything as it was, which is slower at worst.
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.fegetenv(environment)
        environment[word] |= bits
        library.fesetenv(environment)
