"""asyncio: nothing waits in the event loop's thread."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import numpy as np
import pytest

from pipeline.core.plan.plan import Plan
from pipeline.errors import InputError, PipelineClosed, StageError
from pipeline.scheduler import Pipeline
from tests.scheduler.conftest import wait_until


def frame(number: int) -> np.ndarray:
    return np.full(4, number, np.float32)


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    async def limit_time() -> Any:
        return await asyncio.wait_for(coroutine, 30)

    return asyncio.run(limit_time())


def test_submit_and_await(chain: Callable[..., Plan], functions: Any) -> None:
    async def use() -> list[float]:
        futures = [await running.submit_async(frame(number), metadata=number) for number in range(50)]
        return [(await future)[0] for future in futures]

    with Pipeline(chain(3), [lambda x: [x + 1]] * 3, create=functions) as running:
        thread_count = threading.active_count()
        assert run(use()) == [number + 3 for number in range(50)]
        assert threading.active_count() == thread_count


async def camera(count: int) -> AsyncIterator[np.ndarray]:
    for number in range(count):
        await asyncio.sleep(0)
        yield frame(number)


@pytest.mark.parametrize("source", ["asynchronous", "plain"])
def test_amap_is_ordered(chain: Callable[..., Plan], source: str) -> None:
    async def use() -> list[float]:
        frames = camera(100) if source == "asynchronous" else (frame(number) for number in range(100))
        return [result[0] async for result in running.amap(frames)]

    with Pipeline(chain(2, kind="simulated", seconds=0.0005, replicas=2)) as running:
        assert run(use()) == list(range(100))


def test_a_full_pipeline_does_not_hold_up_the_event_loop(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    """The gate is opened by the loop itself: were it held up, it would be for ever."""

    async def use() -> list[float]:
        tasks = [asyncio.create_task(running.submit_async(frame(number))) for number in range(10)]
        await asyncio.sleep(0.01)
        assert not all(task.done() for task in tasks)
        gate.open.set()
        return [(await (await task))[0] for task in tasks]

    with Pipeline(chain(1, queue_depth=1), [gate], create=functions) as running:
        assert run(use()) == list(range(10))


def test_a_cancelled_task_leaves_the_line(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    async def use() -> None:
        futures = [await running.submit_async(frame(number)) for number in range(2)]
        task = asyncio.create_task(running.submit_async(frame(9)))
        await asyncio.sleep(0.01)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(running.submit_async(frame(9)), 0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not running.statistics().blocked_callers
        gate.open.set()
        for future in futures:
            await future

    with Pipeline(chain(1, queue_depth=1, in_flight=2), [gate], create=functions) as running:
        run(use())
        assert running.statistics().submitted == 2


def test_cancelling_the_result_cancels_the_frame(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    async def use() -> None:
        first, second = [await running.submit_async(frame(number)) for number in range(2)]
        gate.wait_entered()
        second.cancel()
        await asyncio.sleep(0.01)
        gate.open.set()
        await first

    with Pipeline(chain(1), [gate], create=functions) as running:
        run(use())
    assert running.statistics().cancelled == 1


def test_errors_arrive(chain: Callable[..., Plan], functions: Any) -> None:
    def fail(x: np.ndarray) -> Any:
        if x[0] == 3:
            raise ValueError("too hot")
        return [x]

    async def use() -> list[float]:
        answers = []
        with pytest.raises(InputError):
            await running.submit_async(frame(0)[:1])
        with pytest.raises(StageError, match="frame 3"):
            async for result in running.amap(frame(number) for number in range(10)):
                answers.append(result[0])
        return answers

    with Pipeline(chain(1), [fail], create=functions) as running:
        assert run(use()) == [0, 1, 2]


def test_close_wakes_tasks_that_wait(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    async def use() -> None:
        tasks = [asyncio.create_task(running.submit_async(frame(number))) for number in range(6)]
        await asyncio.sleep(0.01)
        closing = threading.Thread(target=running.close)
        closing.start()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(result, PipelineClosed) for result in results] == [False] * 2 + [True] * 4
        gate.open.set()
        for result in results[:2]:
            await result  # type: ignore[misc]
        closing.join(30)

    running = Pipeline(chain(1, queue_depth=1, in_flight=2), [gate], create=functions)
    run(use())


def test_leaving_amap_early_cancels_what_waits(chain: Callable[..., Plan], functions: Any) -> None:
    async def use() -> None:
        results = running.amap(frame(number) for number in range(1000))
        async for result in results:
            assert result[0] == 0
            break
        await results.aclose()

    with Pipeline(chain(2), [lambda x: [x]] * 2, create=functions) as running:
        run(use())
    assert running.statistics().submitted < 20


def test_a_loop_that_is_gone_harms_nobody(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    async def use() -> Coroutine[Any, Any, Any]:
        for number in range(2):
            await running.submit_async(frame(number))
        submission = running.submit_async(frame(2))
        submission.send(None)
        assert running.statistics().blocked_callers == 1
        return submission

    with Pipeline(chain(1, queue_depth=1, in_flight=2), [gate], create=functions) as running:
        loop = asyncio.new_event_loop()
        submission = loop.run_until_complete(use())
        loop.close()
        gate.open.set()
        wait_until(lambda: running.statistics().delivered == 3)
        submission.close()


def test_nobody_has_to_ask_for_a_dropped_frame(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    """asyncio complained of an exception that was never retrieved, for each of them."""
    complaints: list[dict[str, Any]] = []

    async def use() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        futures = [await running.submit_async(frame(number)) for number in range(5)]
        gate.open.set()
        await asyncio.wait(futures)
        futures.clear()
        gc.collect()

    async def fail() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        future = await running.submit_async(frame(0))
        await asyncio.wait([future])
        del future
        # The worker may still hold the frame's future, and so this one.
        await asyncio.to_thread(wait_until, lambda: gc.collect() >= 0 and complaints)

    with Pipeline(chain(1, queue_depth=1), [gate], create=functions, admission="latest") as running:
        run(use())
    assert sum(running.statistics().dropped.values()) >= 2
    assert not complaints
    with Pipeline(chain(1), [lambda _: 1 / 0], create=functions) as running:
        run(fail())
    assert "never retrieved" in complaints[0]["message"]
