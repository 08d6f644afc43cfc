"""Denormals are zeros where a thread asks for it."""

from __future__ import annotations

import platform
import sys
import threading

import numpy as np
import pytest

from pipeline.system import denormals

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in {"x86_64", "aarch64"},
    reason="only Linux on x86-64 and 64-bit Arm has the register that is known here",
)


def product() -> float:
    """Halve the smallest normal number."""
    return float((np.full(1, np.finfo(np.float32).tiny) * np.full(1, 0.5, np.float32))[0])


def test_the_calling_thread_alone_makes_no_denormals() -> None:
    inside = list[float]()

    def flush() -> None:
        denormals.flush_to_zero()
        inside.append(product())

    thread = threading.Thread(target=flush)
    thread.start()
    thread.join(30)
    assert inside == [0]
    assert product() > 0
