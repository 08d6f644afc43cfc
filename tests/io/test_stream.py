from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError, SourceLost, StageError
from pipeline.io.sinks.base import Callback, Sink
from pipeline.io.source_frame import SECOND, SourceFrame, StreamFrame
from pipeline.io.sources.base import FrameSource, PacedSource
from pipeline.io.sources.pattern import Pattern, parse_pattern
from pipeline.io.stream import FrameStream
from pipeline.io.uri import parse_size, parse_uri
from tests.support import media


class Numbered(FrameSource):
    """Frames that hold their number; after the last one comes `error`."""

    def __init__(self, count: int, *, live: bool = False, error: BaseException | None = None) -> None:
        self._count, self.live, self._error = count, live, error

    def __iter__(self) -> Iterator[SourceFrame]:
        for number in range(self._count):
            moment = time.time()
            yield SourceFrame(f"{number}", np.full(4, number, np.float32), round(moment * SECOND), moment)
        if self._error is not None:
            raise self._error


def run(source: FrameSource, sink: Sink, function: Any = None, **options: Any) -> tuple[Any, Any]:
    bundle = media.identity((4,), "float32")
    if function is not None:
        bundle = bundle.with_stage(function, inputs=["y"], outputs=[TensorSpec("z", (4,))])
    loading = {name: options.pop(name) for name in ("admission", "on_error") if name in options}
    with pipeline.load(bundle, **loading) as running:
        summary = FrameStream(running, source, sink, **options).run()
    return running.statistics(), summary


def numbers(results: Sequence[StreamFrame]) -> list[int]:
    return [int(next(iter(each.outputs.values()))[0]) for each in results]


def test_a_recording_loses_no_frame_however_slow_the_sink_is() -> None:
    results: list[StreamFrame] = []

    def slow(result: StreamFrame) -> None:
        time.sleep(1e-3)
        results.append(result)

    statistics, summary = run(Numbered(100), Callback(slow))
    assert numbers(results) == list(range(100))
    assert [each.sequence for each in results] == list(range(100))
    assert [each.frame.name for each in results] == [str(number) for number in range(100)]
    assert (statistics.delivered, summary.passed_over, summary.interrupted) == (100, 0, False)
    assert 0 < summary.latency_s.p50 <= summary.latency_s.p99
    assert all(each.seconds > 0 for each in results)


def test_nan_is_told_of_however_plausible_the_results_are(caplog: pytest.LogCaptureFixture) -> None:
    class Faulty(Numbered):
        def __iter__(self) -> Iterator[SourceFrame]:
            for number, frame in enumerate(super().__iter__()):
                yield replace(frame, inputs=np.full(4, np.nan if number in (1, 3) else 0, np.float32))

    _, summary = run(Faulty(5), Sink(), lambda y: np.maximum(np.nan_to_num(y), 0))
    assert (summary.nan_inputs, summary.nan_outputs) == (2, 0)
    assert [record.getMessage() for record in caplog.records] == [
        "the input of frame '1' has NaN: what is made of it means nothing"
    ]
    _, summary = run(Numbered(3), Sink(), lambda y: y * np.float32("nan"))
    assert (summary.nan_inputs, summary.nan_outputs) == (0, 3)
    assert "the output 'z' of frame '0' has NaN" in caplog.text
    assert run(Numbered(3), Sink())[1].nan_outputs == 0


def test_what_is_live_is_never_waited_for_and_the_books_balance() -> None:
    """The stage stands still until the source has ended: were anything to wait, this would never end."""
    results: list[StreamFrame] = []
    end = threading.Event()

    class Ending(Numbered):
        def __iter__(self) -> Iterator[SourceFrame]:
            yield from super().__iter__()
            end.set()

    def stuck(array: np.ndarray) -> np.ndarray:
        assert end.wait(60)
        return array

    statistics, summary = run(Ending(500, live=True), Callback(results.append), stuck, admission="latest")
    assert statistics.submitted + summary.passed_over == 500
    assert statistics.delivered + statistics.dropped["replaced"] == statistics.submitted
    assert numbers(results) == sorted(set(numbers(results)))
    assert summary.passed_over + statistics.dropped["replaced"] > 450


@pytest.mark.parametrize("skip", [False, True])
def test_a_frame_that_fails_ends_the_stream_or_is_skipped(skip: bool) -> None:
    results: list[StreamFrame] = []

    def third(array: np.ndarray) -> np.ndarray:
        if array[0] == 3:
            raise ValueError("three")
        return array

    options = {"skip_failed": skip, "on_error": "skip" if skip else "stop"}
    if skip:
        statistics, _ = run(Numbered(20), Callback(results.append), third, **options)
        assert numbers(results) == [number for number in range(20) if number != 3]
        assert (statistics.failed, statistics.delivered) == (1, 19)
        return
    with pytest.raises(StageError, match="failed on frame 3: ValueError: three"):
        run(Numbered(10_000), Callback(results.append), third, **options)
    assert numbers(results) == [0, 1, 2]


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("error", [SourceLost("unplugged"), ZeroDivisionError("unplugged")])
def test_an_error_of_the_source_comes_out_after_the_frames_before_it(live: bool, error: Exception) -> None:
    results: list[StreamFrame] = []
    with pytest.raises(type(error), match="unplugged"):
        run(Numbered(5, live=live, error=error), Callback(results.append))
    assert numbers(results) == list(range(5))


def test_an_error_of_the_sink_ends_the_stream() -> None:
    def full(_: StreamFrame) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        run(Numbered(10**9), Callback(full))


def test_ctrl_c_ends_what_is_live_in_order_and_a_recording_at_once() -> None:
    results: list[StreamFrame] = []
    _, summary = run(Numbered(5, live=True, error=KeyboardInterrupt()), Callback(results.append))
    assert summary.interrupted
    assert numbers(results) == list(range(5))
    with pytest.raises(KeyboardInterrupt):
        run(Numbered(5, error=KeyboardInterrupt()), Sink())


def test_a_limit_ends_an_endless_source() -> None:
    statistics, _ = run(Numbered(10**9), Sink(), limit=7)
    assert statistics.delivered == 7


def test_a_pattern_has_all_of_each_colour() -> None:
    """Red from left to right, green from top to bottom, blue at both ends; a frame later all is one pixel further."""
    frames = iter(parse_pattern("3x2", None))
    first, second = (np.asarray(next(frames).inputs) for _ in range(2))
    top = [[0, 0, 255], [127, 0, 0], [255, 0, 255]]
    assert first.tolist() == [top, [[red, 255, blue] for red, _, blue in top]]
    np.testing.assert_array_equal(second, np.roll(first, -1, axis=1))


def test_a_pattern_moves_and_is_live_if_it_has_a_pace() -> None:
    frames = iter(Pattern(16, 8))
    first, second = next(frames).inputs, next(frames).inputs
    assert isinstance(first, np.ndarray)
    assert isinstance(second, np.ndarray)
    np.testing.assert_array_equal(first[:, 1:], second[:, :-1])
    assert not Pattern(16, 8).live
    source = parse_pattern("16x8@1000", None)
    assert source.live
    begin = time.time()
    stamps = [frame.timestamp for frame, _ in zip(source, range(5), strict=False)]
    assert np.diff(stamps).tolist() == pytest.approx([1e-3] * 4, abs=1e-6)
    assert time.time() - begin >= 4e-3


@pytest.mark.parametrize("text", ["", "16", "0x8", "16x8x2", "16x8@", "16x8@0", "16x8@inf", "-1x8"])
def test_patterns_that_cannot_be(text: str) -> None:
    with pytest.raises(InputError, match=r"is not a size|no number of frames"):
        parse_pattern(text, None)


@pytest.mark.parametrize(("options", "due_ms"), [({"fps": 500.0}, [0, 2, 4, 6]), ({"speed": 5.0}, [0, 2, 3, 10])])
def test_a_recording_is_played_at_a_pace(options: dict[str, float], due_ms: list[int]) -> None:
    stamps = [10_000, 10_010, 10_015, 10_050]

    class Recorded(FrameSource):
        def __iter__(self) -> Iterator[SourceFrame]:
            yield from (SourceFrame("", np.zeros(1), stamp * 10**6, 0.0) for stamp in stamps)

    begin = time.time()
    frames = list(PacedSource(Recorded(), **options))
    assert time.time() - begin >= due_ms[-1] * 1e-3
    assert [frame.stamp for frame in frames] == [stamp * 10**6 for stamp in stamps]
    np.testing.assert_allclose([frame.ready - frames[0].ready for frame in frames], np.array(due_ms) / 1e3, atol=1e-6)


def test_addresses() -> None:
    kinds = ("camera", "bag")
    address = parse_uri("camera:/dev/video0?size=640x480&fps=30", kinds)
    assert (address.kind, address.location) == ("camera", "/dev/video0")
    assert address.options == {"size": "640x480", "fps": "30"}
    assert parse_uri("C:/a.mp4", kinds).location == "C:/a.mp4"
    assert parse_size("640x480") == (640, 480)
    with pytest.raises(InputError, match="'sise'; the options are size; did you mean 'size'"):
        parse_uri("camera:/dev/video0?sise=1", kinds).check_options("size")
    with pytest.raises(InputError, match="has no value"):
        parse_uri("camera:/dev/video0?size", kinds).check_options("size")
