"""Closable ends its block by `close`, whatever ends the block."""

import pytest

from pipeline.system.closable import Closable


class Recorder(Closable):
    """Counts its closings."""

    closings = 0

    def close(self) -> None:
        """Count one."""
        self.closings += 1


def test_a_block_gets_the_object_and_closes_it() -> None:
    with Recorder() as recorder:
        assert recorder.closings == 0
    assert recorder.closings == 1


def test_an_error_closes_too_and_goes_on() -> None:
    recorder = Recorder()
    with pytest.raises(ValueError, match="a failure"), recorder:
        raise ValueError("a failure")
    assert recorder.closings == 1
