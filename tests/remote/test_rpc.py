"""Stages on TVM's own RPC server: one that dies, hangs or comes back, and a tracker's pool."""

import contextlib
import dataclasses
import gc
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

import pipeline
from pipeline.core.board.board import Board, Device, Link
from pipeline.core.remote_address import parse
from pipeline.errors import DeviceLost, PipelineError, RemoteError, StageTimeout
from pipeline.executor.bundle import Bundle
from pipeline.measure.cost_cache import CostCache
from pipeline.measure.profile import profile
from pipeline.remote import rpc_tracker
from pipeline.remote.rpc_device import RpcConnection
from pipeline.remote.rpc_proxy import RpcProxy
from pipeline.scheduler import Pipeline
from tests.remote.conftest import LIMIT, until
from tests.support.forked import PYTHON_WARNS, in_child
from tests.support.onnx_models import node, save
from tests.support.sampling import QUICK

pytest.importorskip("cloudpickle", reason="TVM's RPC server needs it")

pytestmark = pytest.mark.thorough

NO_TORCH = Path(__file__).parents[1] / "support" / "no_torch"
SHAPE = (1, 4, 3, 3)
SERVER = "import sys, time; from tvm import rpc; "
SERVER += "s = rpc.Server('127.0.0.1', port=int(sys.argv[1]), port_end=int(sys.argv[1]) + 1000, key=sys.argv[3], "
SERVER += "tracker_addr=('127.0.0.1', int(sys.argv[2])) if sys.argv[2] else None); print(s.port, flush=True); "
SERVER += "time.sleep(1e6)"
TRACKER = "import time; from tvm.rpc.tracker import Tracker; "
TRACKER += "t = Tracker('127.0.0.1', port=19190, port_end=20190); print(t.port, flush=True); time.sleep(1e6)"


class RpcServer:
    """TVM's server, which has processes of its own."""

    def __init__(self, code: str, *arguments: object) -> None:
        self._line = [sys.executable, "-c", code]
        self._arguments = list(map(str, arguments))
        self.start()

    def start(self) -> None:
        paths = [str(NO_TORCH), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(
            [*self._line, *self._arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        if self._arguments:
            self._arguments[0] = str(self.port)

    def send(self, number: signal.Signals) -> None:
        for process in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def kill(self) -> None:
        if self.process.returncode is None:
            self.send(signal.SIGKILL)
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process.wait()

    def _family(self) -> list[psutil.Process]:
        first = psutil.Process(self.process.pid)
        return [*first.children(recursive=True), first]


@pytest.fixture
def start() -> Iterator[Callable[..., RpcServer]]:
    with contextlib.ExitStack() as stack:

        def begin(code: str, *arguments: object) -> RpcServer:
            server = RpcServer(code, *arguments)
            stack.callback(server.kill)
            return server

        yield begin


@pytest.fixture
def server(start: Callable[..., RpcServer]) -> RpcServer:
    """A server that the test may stop, kill or start again."""
    return start(SERVER, 18190, "", "")


@pytest.fixture(scope="module")
def lasting_server() -> Iterator[RpcServer]:
    """One server for all tests that leave it as it was: starting one imports TVM three times."""
    server = RpcServer(SERVER, 18190, "", "")
    yield server
    server.kill()


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Two convolutions that negate; the second one is for a board."""
    nodes = [node("Conv", "x w", "a"), node("Conv", "a w", "y")]
    weights = {"w": -np.eye(4, dtype=np.float32).reshape(4, 4, 1, 1)}
    path = save(tmp_path_factory.mktemp("model") / "m.onnx", nodes, {"x": SHAPE}, ["y"], weights)
    target = {"kind": "llvm", "mtriple": f"{platform.machine()}-linux-gnu"}
    board = Board("bare", (Device("here"), Device("there", "rpc", target=target, address="rpc://127.0.0.1:1/cpu")))
    graph = pipeline.read(path)
    return pipeline.build(graph, pipeline.plan(graph, board, cuts=["a"], devices=["here", "there"]))


LARGE = (1, 16, 4, 4)


@pytest.fixture(scope="session")
def parameters(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Two convolutions that negate; the second one's weights are a parameter, beside the code."""
    nodes = [node("Conv", "x v", "a"), node("Conv", "a w", "y", pads=[1, 1, 1, 1])]
    weight = np.zeros((16, 16, 3, 3), np.float32)
    weight[:, :, 1, 1] = -np.eye(16)
    arrays = {"v": np.ascontiguousarray(weight[:, :, 1:2, 1:2]), "w": weight}
    path = save(tmp_path_factory.mktemp("model") / "m.onnx", nodes, {"x": LARGE}, ["y"], arrays)
    target = {"kind": "llvm", "mtriple": f"{platform.machine()}-linux-gnu"}
    board = Board("bare", (Device("here"), Device("there", "rpc", target=target, address="rpc://127.0.0.1:1/cpu")))
    graph = pipeline.read(path)
    return pipeline.build(graph, pipeline.plan(graph, board, cuts=["a"], devices=["here", "there"]))


def at(bundle: Bundle, address: str) -> Bundle:
    """Return the bundle for another address."""
    host, remote_device = bundle.plan.board.devices
    board = dataclasses.replace(bundle.plan.board, devices=(host, dataclasses.replace(remote_device, address=address)))
    return Bundle(dataclasses.replace(bundle.plan, board=board), bundle.codes)


def ask(running: Pipeline, number: int) -> BaseException | None:
    future = running.submit(np.full(SHAPE, number, np.float32))
    if (error := future.exception(LIMIT)) is None:
        assert (future.result() == number).all()
    return error


def until_served(running: Pipeline) -> int:
    failure_count = 0
    while ask(running, 7) is not None:
        failure_count += 1
    return failure_count


def test_frames_go_there_and_back(bundle: Bundle, lasting_server: RpcServer) -> None:
    with pipeline.load(at(bundle, f"rpc://127.0.0.1:{lasting_server.port}/cpu?timeout=30")) as running:
        assert [ask(running, number) for number in range(5)] == [None] * 5


def test_a_server_that_dies_or_hangs_and_comes_back(bundle: Bundle, server: RpcServer) -> None:
    with pipeline.load(at(bundle, f"rpc://127.0.0.1:{server.port}/cpu?timeout=1.5&patience=0")) as running:
        submitted = running.statistics
        assert ask(running, 1) is None
        server.send(signal.SIGSTOP)
        hung = ask(running, 2)
        server.send(signal.SIGCONT)
        assert "no answer within 1.5 s: it hangs" in str(hung)
        assert isinstance(hung.__cause__ if hung else None, DeviceLost)
        until_served(running)
        server.kill()
        assert isinstance(getattr(ask(running, 3), "__cause__", None), DeviceLost)
        server.start()
        until_served(running)
        statistics = submitted()
    assert statistics.delivered + statistics.failed == statistics.submitted


def test_a_server_that_hangs_does_not_hold_up_the_stages_timeout(bundle: Bundle, server: RpcServer) -> None:
    """The frame ends before the server is given up; and when the server goes on, so do frames."""
    address = f"rpc://127.0.0.1:{server.port}/cpu?timeout={10 * LIMIT}"
    with pipeline.load(at(bundle, address), stage_timeout={bundle.plan.stages[1].name: 1.0}) as running:
        assert ask(running, 1) is None
        server.send(signal.SIGSTOP)
        assert isinstance(ask(running, 2), StageTimeout)
        server.send(signal.SIGCONT)
        assert [ask(running, number) for number in (3, 4)] == [None, None]


def test_parameters_and_bundles_are_changed_while_frames_are_there(
    parameters: Bundle, lasting_server: RpcServer
) -> None:
    """The server has one session at a time, and the stages that end still need it while the new ones are loaded."""
    bundle = at(parameters, f"rpc://127.0.0.1:{lasting_server.port}/cpu?timeout=30")
    ((name, weight),) = bundle.codes[1].parameters.items()
    image = np.ones(LARGE, np.float32)
    with pipeline.load(bundle) as running:
        futures = [running.submit(image) for _ in range(3)]
        running.set_params(bundle.plan.stages[1].name, {name: 2 * weight})
        futures += [running.submit(image) for _ in range(3)]
        running.swap(bundle)
        futures += [running.submit(image) for _ in range(3)]
        assert [float(future.result(LIMIT).max()) for future in futures] == [1.0] * 3 + [2.0] * 3 + [1.0] * 3
    with pipeline.load(bundle) as running:
        assert running.submit(image).result(LIMIT).max() == 1, "the session was given back"


def test_stages_and_replicas_share_a_server(bundle: Bundle, lasting_server: RpcServer) -> None:
    first, second = (dataclasses.replace(stage, device="there", cores=()) for stage in bundle.plan.stages)
    address = f"rpc://127.0.0.1:{lasting_server.port}/cpu?timeout=30"
    remote_device = dataclasses.replace(bundle.plan.board.device("there"), address=address)
    plan = dataclasses.replace(
        bundle.plan, board=Board("bare", (remote_device,)), stages=(first, dataclasses.replace(second, replicas=2))
    )
    with pipeline.load(Bundle(plan, [bundle.codes[1], bundle.codes[1]])) as running:
        assert [ask(running, number) for number in range(5)] == [None] * 5


@pytest.mark.slow
def test_a_swap_needs_no_second_server_of_a_trackers_pool(bundle: Bundle, start: Callable[..., RpcServer]) -> None:
    pytest.importorskip("tornado", reason="TVM's tracker needs it")
    tracker = start(TRACKER)
    start(SERVER, 18190, tracker.port, "board")
    pool_bundle = at(bundle, f"rpc://127.0.0.1:{tracker.port}/board?tracker&timeout=30")
    with pipeline.load(pool_bundle) as running:
        assert ask(running, 1) is None
        running.swap(pool_bundle)
        assert ask(running, 2) is None


@pytest.mark.filterwarnings(PYTHON_WARNS)
def test_a_forked_process_leaves_the_session_alone(bundle: Bundle, server: RpcServer) -> None:
    """TVM ends a session with its last object, and would end the parent's from there."""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(pipeline.load(at(bundle, f"rpc://127.0.0.1:{server.port}/cpu?timeout=30")))]

        def work() -> None:
            stack.pop_all()  # nobody has the pipeline any more
            opened.pop().close()
            gc.collect()

        assert ask(opened[0], 1) is None
        assert in_child(work) == ""
        assert [ask(opened[0], number) for number in (2, 3)] == [None, None]


def test_a_server_that_is_busy_with_somebody_else_is_named(bundle: Bundle, server: RpcServer) -> None:
    code = bundle.codes[1]
    mine = RpcConnection(parse(f"rpc://127.0.0.1:{server.port}/cpu?timeout=30"))
    number = mine.open(bundle.plan.stages[1], code)
    with pytest.raises(DeviceLost, match=r"no answer within 0\.5 s: it serves somebody else already, or hangs"):
        RpcConnection(parse(f"rpc://127.0.0.1:{server.port}/cpu?timeout=0.5"))
    with pytest.raises(RemoteError, match="rpc://127"):
        mine.run(number, bundle.plan.stages[1], [np.zeros((1, 4, 3, 4), np.float32)])
    assert mine.run(number, bundle.plan.stages[1], [np.ones(SHAPE, np.float32)])[0].max() == -1
    assert mine.usable()
    mine.close()


def test_a_tracker_gives_a_board_of_its_pool(bundle: Bundle, start: Callable[..., RpcServer]) -> None:
    pytest.importorskip("tornado", reason="TVM's tracker needs it")
    tracker = start(TRACKER)
    start(SERVER, 18190, tracker.port, "board")
    with pipeline.load(at(bundle, f"rpc://127.0.0.1:{tracker.port}/board?tracker&timeout=30")) as running:
        assert ask(running, 1) is None
    with pytest.raises(PipelineError, match=r"the tracker has no free server within 0\.5 s"):
        pipeline.load(at(bundle, f"rpc://127.0.0.1:{tracker.port}/other?tracker&timeout=0.5&patience=0"))


# Four processes import TVM one after the other, which takes a loaded machine more than a minute.
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_replica_that_lost_its_server_takes_it_again_when_it_is_back(
    bundle: Bundle, start: Callable[..., RpcServer]
) -> None:
    """It shared the other replica's server for good, and the one that was back stood idle."""
    pytest.importorskip("tornado", reason="TVM's tracker needs it")
    from tvm import rpc

    tracker = start(TRACKER)
    servers = [start(SERVER, 18190, tracker.port, "board") for _ in range(2)]
    pool = rpc.connect_tracker("127.0.0.1", tracker.port)

    def idle_servers() -> int:
        return int(pool.summary()["queue_info"].get("board", {"free": 0})["free"])

    # A server listens before the tracker knows of it; a replica that finds one only shares its session.
    until(lambda: idle_servers() == len(servers))
    first, second = bundle.plan.stages
    stages = (first, dataclasses.replace(second, replicas=2, cores=()))
    replicated = Bundle(dataclasses.replace(bundle.plan, stages=stages), bundle.codes)
    with pipeline.load(at(replicated, f"rpc://127.0.0.1:{tracker.port}/board?tracker&timeout=30")) as running:
        assert [ask(running, number) for number in range(4)] == [None] * 4
        assert idle_servers() == 0
        servers[0].kill()
        until_served(running)
        servers[0].start()
        until(idle_servers)
        # Frames of both replicas: either may share the session of the other.
        until(lambda: not any(ask(running, number) for number in range(4)) and not idle_servers())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_pool_of_a_trackers_servers_loses_no_frame(bundle: Bundle, start: Callable[..., RpcServer]) -> None:
    pytest.importorskip("tornado", reason="TVM's tracker needs it")
    tracker = start(TRACKER)
    servers = [start(SERVER, 18190, tracker.port, "board") for _ in range(2)]
    address = parse(f"rpc://127.0.0.1:{tracker.port}/board?tracker&timeout=30")
    until(lambda: rpc_tracker.count_servers(address) == len(servers))
    first, second = bundle.plan.stages
    stages = (first, dataclasses.replace(second, replicas=2, cores=()))
    replicated = Bundle(dataclasses.replace(bundle.plan, stages=stages), bundle.codes)
    text = f"pool:rpc://127.0.0.1:{tracker.port}/board?tracker&timeout=30"

    def ask_both(running: Pipeline) -> None:
        futures = [running.submit(np.full(SHAPE, number, np.float32)) for number in range(20)]
        assert [float(future.result(LIMIT).max()) for future in futures] == list(range(20))

    with pipeline.load(at(replicated, text)) as running:
        ask_both(running)
        until(lambda: not rpc_tracker.has_free_server(address))
        servers[0].kill()
        ask_both(running)
        until(lambda: rpc_tracker.count_servers(address) == 1)
        servers[0].start()

        def uses_both() -> bool:
            ask_both(running)
            return rpc_tracker.count_servers(address) == 2 and not rpc_tracker.has_free_server(address)

        until(uses_both)


def test_a_model_is_measured_there_by_the_boards_own_clock(bundle: Bundle, server: RpcServer, tmp_path: Path) -> None:
    host, remote_device = at(bundle, f"rpc://127.0.0.1:{server.port}/cpu?timeout=60").plan.board.devices
    distant_device = dataclasses.replace(remote_device, memory="there")
    board = Board("bare", (host, distant_device), (Link((host.memory, "there"), 1.0),))
    nodes = [node("Softmax", "x", "a"), node("ReduceMean", "a", "y", axes=[1])]
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": (16, 16)}, ["y"]))
    measured_profile = profile(graph, board, cache=CostCache(tmp_path), sampling=QUICK)
    assert measured_profile.estimated == {}
    assert all(0 < each < 0.1 for each in measured_profile.measured["there"])
    (link,) = measured_profile.board.links
    assert link.measured
    assert 1e5 < link.bytes_per_s < 1e11


def test_nobody_there(bundle: Bundle) -> None:
    with pytest.raises(DeviceLost, match=r"rpc://127.0.0.1:1/cpu: nothing listens there"):
        pipeline.load(at(bundle, "rpc://127.0.0.1:1/cpu?patience=0"))


def test_a_proxy_passes_on_and_breaks_what_hangs() -> None:
    """It passes on more than the system holds, both ways at once, and does not need this process to break."""
    data = np.random.default_rng(0).bytes(5_000_000)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = RpcProxy("127.0.0.1", listener.getsockname()[1], 30.0)
        with listener.accept()[0] as theirs, socket.create_connection(("127.0.0.1", proxy.port)) as ours:
            writers = [threading.Thread(target=side.sendall, args=(data,)) for side in (ours, theirs)]
            for writer in writers:
                writer.start()
            assert _read(theirs, len(data)) == _read(ours, len(data)) == data
            for writer in writers:
                writer.join(LIMIT)
            assert state(proxy) == (False, False)
            with proxy.limit(0.1):
                assert ours.recv(1) == b""
            assert state(proxy) == (True, True)
        proxy.close()


def state(proxy: RpcProxy) -> tuple[bool, bool]:
    return proxy.ended, proxy.expired


def _read(side: socket.socket, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        received += side.recv(1 << 20)
    return bytes(received)


def test_a_proxy_ends_with_its_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = RpcProxy("127.0.0.1", listener.getsockname()[1], 30.0)
        with socket.create_connection(("127.0.0.1", proxy.port)) as ours:
            listener.accept()[0].close()
            assert ours.recv(1) == b""
        assert state(proxy) == (True, False)
        proxy.close()


@pytest.mark.filterwarnings(PYTHON_WARNS)
def test_a_proxy_that_was_closed_closes_no_files_of_others_in_a_forked_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = RpcProxy("127.0.0.1", listener.getsockname()[1], 30.0)
        proxy.close()
    # They get the numbers that the proxy's pipes had.
    pipes = [os.pipe() for _ in range(4)]

    def work() -> None:
        proxy.after_fork()
        for descriptor in sum(pipes, ()):
            os.fstat(descriptor)

    assert in_child(work) == ""
    for descriptor in sum(pipes, ()):
        os.close(descriptor)


def test_a_proxy_starts_in_a_program_with_many_files() -> None:
    """It took only descriptors below 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2048)), hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for _ in range(1030):
            stack.enter_context(open(os.devnull))  # noqa: PTH123 - only its descriptor counts
        proxy = RpcProxy("127.0.0.1", listener.getsockname()[1], 30.0)
        assert state(proxy) == (False, False)
        proxy.close()


def test_the_proxy_needs_no_package(root: Path) -> None:
    """It starts in an instant, because it imports nothing but the standard library."""
    source = (root / "pipeline" / "remote" / "rpc_proxy.py").read_text()
    assert "import pipeline" not in source
    assert "from pipeline" not in source
