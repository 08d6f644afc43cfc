"""Pools of servers: frames go to who has the least to do, and a lost member costs none."""

from __future__ import annotations

import contextlib
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipeline.core.board.board import Device
from pipeline.core.plan.device_map import code_kind
from pipeline.core.plan.plan import Plan
from pipeline.core.remote_address import alternatives, parse
from pipeline.errors import BoardError, DeviceLost, PipelineError, StageError
from pipeline.executor.devices.null import NullRuntime
from pipeline.executor.devices.simulated import SimulatedRuntime
from pipeline.remote.device_threads import ServerDevices, share_cores
from pipeline.remote.endpoint import ServerEndpoint
from pipeline.remote.offer import Offer
from pipeline.remote.pool import Pool
from pipeline.remote.pool_device import PoolCandidate
from pipeline.remote.server import Server
from pipeline.remote.store import FileStore
from pipeline.scheduler import Pipeline
from tests.remote.conftest import LIMIT, Child, frame, in_thread, plan

Start = Callable[..., Server]


class CountingRuntime(SimulatedRuntime):
    """A simulated device that counts its frames by the first of its cores, which stands for the server."""

    def __init__(self, device: Device, counts: Counter[int]) -> None:
        super().__init__(device)
        self._counts, self._core = counts, device.cores[0]

    def open(self, cores: Sequence[int]) -> None:
        """There are no such cores."""

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        self._counts[self._core] += 1
        return super().run(program, inputs)


@contextlib.contextmanager
def serving(port: int = 0, **options: Any) -> Iterator[Server]:
    computing = ServerDevices(
        options.pop("cores", ()), options.pop("create", NullRuntime), slots=options.pop("slots", 1)
    )
    offer = Offer(FileStore(), computing, (), largest_frame=1_000_000)
    with in_thread(Server("127.0.0.1", port, offer, **options)) as server:
        yield server


def pool(servers: Sequence[Server | Child], device: str = "null", options: str = "") -> str:
    return "pool:" + ",".join(f"remote://127.0.0.1:{server.port}/{device}{options}" for server in servers)


def counting(counts: Counter[int]) -> Callable[[Device], CountingRuntime]:
    return lambda device: CountingRuntime(device, counts)


def stream(running: Pipeline, count: int) -> list[Any]:
    futures = [running.submit(frame(number)) for number in range(count)]
    for number, future in enumerate(futures):
        assert np.array_equal(future.result(LIMIT), frame(number))
    return futures


def test_members_share_the_frames_by_their_slots() -> None:
    counts: Counter[int] = Counter()
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(serving(cores=cores, slots=len(cores), create=counting(counts)))
            for cores in ((0,), (10,), (20, 21))
        ]
        with Pipeline(plan(pool(servers, "simulated"), replicas=6, seconds=5e-3)) as running:
            stream(running, 200)
    assert sum(counts.values()) == 200
    assert set(counts) == {0, 10, 20, 21}
    # Each slot computes one at a time, so that none can have had many more than its share.
    assert max(counts.values()) <= 80


def test_a_member_that_goes_costs_no_frame_and_comes_back() -> None:
    counts: Counter[int] = Counter()
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(serving(cores=(core,), create=counting(counts))) for core in (0, 10)]
        leaving = contextlib.ExitStack()
        third = leaving.enter_context(serving(cores=(20,), create=counting(counts)))
        with Pipeline(plan(pool([*servers, third], "simulated"), replicas=4, seconds=1e-3)) as running:
            stream(running, 60)
            assert counts[20]
            first = [running.submit(frame(number)) for number in range(60)]
            leaving.close()
            assert all(future.exception(LIMIT) is None for future in first)
            stream(running, 60)
            before = counts[20]
            stack.enter_context(serving(third.port, cores=(20,), create=counting(counts)))
            deadline = time.monotonic() + LIMIT
            while counts[20] == before:
                stream(running, 20)
                assert time.monotonic() < deadline
            statistics = running.statistics()
    assert (statistics.failed, statistics.delivered) == (0, statistics.submitted)


@pytest.mark.parametrize("title", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
def test_a_process_that_ends_or_hangs_costs_no_frame(serve: Callable[..., Child], title: signal.Signals) -> None:
    children = [serve("--slots", 1) for _ in range(3)]
    address = pool(children, "simulated", "?timeout=0.4&patience=20")
    with Pipeline(plan(address, replicas=4, seconds=2e-3)) as running:
        stream(running, 50)
        futures = [running.submit(frame(number)) for number in range(50)]
        children[0].send(title)
        assert [future.exception(LIMIT) for future in futures] == [None] * 50
        stream(running, 50)
        if title == signal.SIGSTOP:
            children[0].send(signal.SIGCONT)
        assert running.statistics().failed == 0


def test_without_any_member_frames_wait_and_then_fail() -> None:
    with contextlib.ExitStack() as stack:
        inner = stack.enter_context(contextlib.ExitStack())
        server = inner.enter_context(serving())
        running = stack.enter_context(Pipeline(plan(pool([server], options="?patience=0.2"))))
        stream(running, 3)
        inner.close()
        with pytest.raises(StageError) as failure:
            running.submit(frame(1)).result(LIMIT)
        assert isinstance(failure.value.__cause__, DeviceLost)
        stack.enter_context(serving(server.port))
        deadline = time.monotonic() + LIMIT
        while running.submit(frame(1)).exception(LIMIT) is not None:
            assert time.monotonic() < deadline


def test_a_pool_that_nobody_is_in_is_named() -> None:
    with serving() as gone:
        address = pool([gone], options="?patience=0.1&timeout=0.2")
    with pytest.raises(PipelineError, match="nothing listens there"):
        Pipeline(plan(address))


def test_a_stage_that_all_members_refuse_is_named() -> None:
    with serving() as server, pytest.raises(PipelineError, match="no device 'gpu'"):
        Pipeline(plan(pool([server], "gpu", "?patience=50")))


def test_a_member_that_refuses_is_left_out() -> None:
    counts: Counter[int] = Counter()
    with serving(cores=(0,), create=counting(counts)) as willing:
        offer = Offer(FileStore(), ServerDevices(()), (), largest_frame=1)
        with (
            in_thread(Server("127.0.0.1", 0, offer)) as other,
            Pipeline(plan(pool([other, willing]), replicas=3)) as running,
        ):
            stream(running, 20)
    assert counts[0] == 20


class FastidiousRuntime(NullRuntime):
    """Fails on negative frames."""

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        if inputs[0][0] < 0:
            raise ValueError("a negative frame")
        return super().run(program, inputs)


def test_a_frame_that_fails_on_all_members_fails_alone() -> None:
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(serving(create=FastidiousRuntime)) for _ in range(2)]
        running = stack.enter_context(Pipeline(plan(pool(servers))))
        with pytest.raises(StageError, match="a negative frame"):
            running.submit(frame(-1)).result(LIMIT)
        stream(running, 10)
        assert running.statistics().failed == 1


def test_sessions_are_shared_and_end_with_the_pipeline() -> None:
    with serving(slots=2, cores=(0, 1), create=lambda device: CountingRuntime(device, Counter())) as server:
        with Pipeline(plan(pool([server], "simulated"), replicas=8, seconds=1e-3)) as running:
            stream(running, 100)
            # Two for each slot: of one of them the frame is on its way.
            assert server.sessions <= 4
        deadline = time.monotonic() + LIMIT
        while server.sessions:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_members_come_and_go() -> None:
    with serving() as first, serving() as second:
        endpoints = [ServerEndpoint(parse(f"remote://127.0.0.1:{server.port}/null")) for server in (first, second)]
        with contextlib.closing(Pool(endpoints[:1])) as members:
            stages = [(plan("").stages[1], None)]
            candidate = PoolCandidate(lambda: contextlib.nullcontext(members), stages, patience=0.1, timeout=0.1)
            candidate.run(0, [frame(1)])
            (old_member,) = members.members
            new_member = members.add(endpoints[1])
            members.remove(old_member)
            (output,) = candidate.run(0, [frame(2)])
            assert np.array_equal(output, frame(2))
            deadline = time.monotonic() + LIMIT
            while first.sessions or not second.sessions:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            members.remove(new_member)
            with pytest.raises(DeviceLost, match="the pool has no member"):
                candidate.run(0, [frame(3)])


def test_alternatives_of_a_pool() -> None:
    with serving() as gone:
        address = pool([gone], options="?timeout=0.3")
    with Pipeline(plan(f"{address} local:null")) as running:
        stream(running, 5)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("pool:", "is not a pool"),
        ("pool:remote://a:1/cpu,rpc://b:2/cpu", "'rpc://b:2/cpu' cannot be a member"),
        ("pool:remote://a:1/cpu,remote://b:2/vta", "one kind of device, not 'cpu' and 'vta'"),
        ("pool:remote://a:1/cpu,remote://a:1/cpu", "names a member twice"),
        ("pool:remote://a:1/cpu,nonsense", "is not an address"),
    ],
)
def test_what_is_no_pool_is_named(text: str, reason: str) -> None:
    with pytest.raises(BoardError, match=reason):
        parse(text)


def test_addresses_of_pools() -> None:
    (address, stand_in) = alternatives("pool:remote://a:1/cpu,remote://b:2/cpu?timeout=3 local:cpu")
    assert [member.timeout for member in address.members] == [1.0, 3.0]
    assert (address.device, stand_in.scheme) == ("cpu", "local")
    assert str(address) == "pool:remote://a:1/cpu,remote://b:2/cpu"
    assert code_kind(Device("board", "remote", address=str(address))) == "cpu"


def test_a_bundles_device_may_be_a_pool() -> None:
    from pipeline.core.plan.device_map import map_devices

    made: Plan = plan("remote://a:1/cpu")
    mapped = map_devices(made, {"there": "pool:remote://a:1/cpu,remote://b:2/cpu"})
    assert mapped.board.device("there").kind == "remote"
    assert replace(mapped, board=made.board) == made


def test_cores_are_shared_by_slots() -> None:
    assert share_cores((0, 1, 2, 3, 4), 2) == [(0, 1), (2, 3, 4)]
    assert share_cores((), 2) == [(), ()]
    with pytest.raises(BoardError, match="3 slots need a core each; there are 2"):
        share_cores((0, 1), 3)
