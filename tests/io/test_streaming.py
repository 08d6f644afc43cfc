from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.errors import InputError, SourceLost, StageError
from pipeline.io.address import parse, size
from pipeline.io.frame import SECOND, Delivered, Frame
from pipeline.io.pacing import Paced
from pipeline.io.pattern import Pattern, pattern
from pipeline.io.sink import Callback, Sink
from pipeline.io.source import Source
from pipeline.io.streaming import Streaming
from pipeline.plans import TensorSpec
from tests.io import media


class Numbered(Source):
    """Frames that hold their number; after the last one comes `error`."""

    def __init__(self, count: int, *, live: bool = False, error: BaseException | None = None) -> None:
        self._count, self.live, self._error = count, live, error

    def __iter__(self) -> Iterator[Frame]:
        for number in range(self._count):
            now = time.time()
            yield Frame(f"{number}", np.full(4, number, np.float32), round(now * SECOND), now)
        if self._error is not None:
            raise self._error


def run(source: Source, sink: Sink, function: Any = None, **options: Any) -> tuple[Any, Any]:
    bundle = media.identity((4,), "float32")
    if function is not None:
        bundle = bundle.with_stage(function, inputs=["y"], outputs=[TensorSpec("z", (4,))])
    loading = {name: options.pop(name) for name in ("admission", "on_error") if name in options}
    with pipeline.load(bundle, **loading) as running:
        streamed = Streaming(running, source, sink, **options).run()
    return running.statistics(), streamed


def numbers(found: Sequence[Delivered]) -> list[int]:
    return [int(next(iter(each.outputs.values()))[0]) for each in found]


def test_a_recording_loses_no_frame_however_slow_the_sink_is() -> None:
    found: list[Delivered] = []

    def slow(delivered: Delivered) -> None:
        time.sleep(1e-3)
        found.append(delivered)

    statistics, streamed = run(Numbered(100), Callback(slow))
    assert numbers(found) == list(range(100))
    assert [each.number for each in found] == list(range(100))
    assert [each.frame.name for each in found] == [str(number) for number in range(100)]
    assert (statistics.delivered, streamed.passed_over, streamed.interrupted) == (100, 0, False)
    assert 0 < streamed.latency_s.p50 <= streamed.latency_s.p99
    assert all(each.seconds > 0 for each in found)


def test_what_is_live_is_never_waited_for_and_the_books_balance() -> None:
    """The stage stands still until the source has ended: were anything to wait, this would never end."""
    found: list[Delivered] = []
    ended = threading.Event()

    class Ending(Numbered):
        def __iter__(self) -> Iterator[Frame]:
            yield from super().__iter__()
            ended.set()

    def stuck(array: np.ndarray) -> np.ndarray:
        assert ended.wait(60)
        return array

    statistics, streamed = run(Ending(500, live=True), Callback(found.append), stuck, admission="latest")
    assert statistics.submitted + streamed.passed_over == 500
    assert statistics.delivered + statistics.dropped["replaced"] == statistics.submitted
    assert numbers(found) == sorted(set(numbers(found)))
    assert streamed.passed_over + statistics.dropped["replaced"] > 450


@pytest.mark.parametrize("skip", [False, True])
def test_a_frame_that_fails_ends_the_stream_or_is_skipped(skip: bool) -> None:
    found: list[Delivered] = []

    def third(array: np.ndarray) -> np.ndarray:
        if array[0] == 3:
            raise ValueError("three")
        return array

    options = {"skip_failed": skip, "on_error": "skip" if skip else "stop"}
    if skip:
        statistics, _ = run(Numbered(20), Callback(found.append), third, **options)
        assert numbers(found) == [number for number in range(20) if number != 3]
        assert (statistics.failed, statistics.delivered) == (1, 19)
        return
    with pytest.raises(StageError, match="failed on frame 3: ValueError: three"):
        run(Numbered(10_000), Callback(found.append), third, **options)
    assert numbers(found) == [0, 1, 2]


def test_an_error_of_the_source_comes_out_and_what_was_read_is_not_waited_for() -> None:
    with pytest.raises(SourceLost, match="unplugged"):
        run(Numbered(5, error=SourceLost("unplugged")), Sink())


def test_an_error_of_the_sink_ends_the_stream() -> None:
    def full(_: Delivered) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        run(Numbered(10**9), Callback(full))


def test_ctrl_c_ends_what_is_live_in_order_and_a_recording_at_once() -> None:
    found: list[Delivered] = []
    _, streamed = run(Numbered(5, live=True, error=KeyboardInterrupt()), Callback(found.append))
    assert streamed.interrupted
    assert numbers(found) == list(range(5))
    with pytest.raises(KeyboardInterrupt):
        run(Numbered(5, error=KeyboardInterrupt()), Sink())


def test_a_limit_ends_an_endless_source() -> None:
    statistics, _ = run(Numbered(10**9), Sink(), limit=7)
    assert statistics.delivered == 7


def test_a_pattern_moves_and_is_live_if_it_has_a_pace() -> None:
    frames = iter(Pattern(16, 8))
    first, second = next(frames).inputs, next(frames).inputs
    assert isinstance(first, np.ndarray)
    assert isinstance(second, np.ndarray)
    np.testing.assert_array_equal(first[:, 1:], second[:, :-1])
    assert not Pattern(16, 8).live
    paced = pattern("16x8@1000", None)
    assert paced.live
    begin = time.time()
    stamps = [frame.timestamp for frame, _ in zip(paced, range(5), strict=False)]
    assert np.diff(stamps).tolist() == pytest.approx([1e-3] * 4, abs=1e-6)
    assert time.time() - begin >= 4e-3


@pytest.mark.parametrize("text", ["", "16", "0x8", "16x8x2", "16x8@", "16x8@0", "16x8@inf", "-1x8"])
def test_patterns_that_cannot_be(text: str) -> None:
    with pytest.raises(InputError, match=r"is not a size|no number of frames"):
        pattern(text, None)


@pytest.mark.parametrize(("options", "expected"), [({"fps": 500.0}, [0, 2, 4, 6]), ({"speed": 5.0}, [0, 2, 3, 10])])
def test_a_recording_is_played_at_a_pace(options: dict[str, float], expected: list[int]) -> None:
    stamps = [10_000, 10_010, 10_015, 10_050]

    class Recorded(Source):
        def __iter__(self) -> Iterator[Frame]:
            yield from (Frame("", np.zeros(1), stamp * 10**6, 0.0) for stamp in stamps)

    begin = time.time()
    frames = list(Paced(Recorded(), **options))
    assert time.time() - begin >= expected[-1] * 1e-3
    assert [frame.stamp for frame in frames] == [stamp * 10**6 for stamp in stamps]
    np.testing.assert_allclose([frame.ready - frames[0].ready for frame in frames], np.array(expected) / 1e3, atol=1e-6)


def test_addresses() -> None:
    kinds = ("camera", "bag")
    address = parse("camera:/dev/video0?size=640x480&fps=30", kinds)
    assert (address.kind, address.place, address.options) == ("camera", "/dev/video0", {"size": "640x480", "fps": "30"})
    assert parse("C:/a.mp4", kinds).place == "C:/a.mp4"
    assert size("640x480") == (640, 480)
    with pytest.raises(InputError, match="'sise'; the options are size; did you mean 'size'"):
        parse("camera:/dev/video0?sise=1", kinds).only(("size",))
    with pytest.raises(InputError, match="has no value"):
        parse("camera:/dev/video0?size", kinds)
