"""How exactly threads are woken that sleep."""

from __future__ import annotations

import ctypes
import sys
import threading

import pytest

from pipeline.system.timer_slack import wake_on_time

GET_TIMER_SLACK = 30
"""Of <linux/prctl.h>."""


def slack_ns() -> int:
    return int(ctypes.CDLL(None).prctl(GET_TIMER_SLACK, 0, 0, 0, 0))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how late it may wake a thread")
def test_the_calling_thread_alone_is_woken_at_once() -> None:
    before, inside = slack_ns(), list[int]()

    def sleeper() -> None:
        wake_on_time()
        inside.append(slack_ns())

    thread = threading.Thread(target=sleeper)
    thread.start()
    thread.join(30)
    assert inside == [1]
    assert slack_ns() == before
