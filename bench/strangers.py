"""Strangers at a server's port: what they cost a client that was let in, and the server's memory.

A server of ``soc-pipeline serve --tls`` on loopback, a client with the token that streams frames of 4 kB, and another
process that attacks: 10,000 connections that say nothing, that announce a head of 4 MB as their first message and send
it, or that show a wrong token.  Nobody has to wait for its address, since all of loopback is one.  In turns with each
attack runs a process that only uses as much of the processor as the attacker did.

tried          connections of the attackers, all rounds together
attacker_cores cores that the attacker kept busy
frames_per_s   of the client, during the attack
beside_per_s   of the client, beside a process with the attacker's use of the processor
ratio          of these two
grown_mb       resident memory of the server, after the attacks over before
"""

from __future__ import annotations

import contextlib
import math
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import psutil
from report import Row, median, parser, report

from pipeline.core.plan.plan import StagePlan, TensorSpec
from pipeline.core.remote_address import parse
from pipeline.remote import messages
from pipeline.remote.connection import Connection
from pipeline.remote.credentials import create_credentials

COUNT, HELD, THREADS = 10_000, 500, 64
"""Connections of an attack, how many silent ones are open at once, and how many others."""

SECONDS, ROUNDS = 20.0, 3
"""Longest time of an attack, and how many there are of each kind, which share the connections."""

ATTEMPT_S = 0.5
WARM_UP_S = 1.0
KINDS = ("silent", "heads", "tokens")
STAGE = StagePlan("s", "there", (TensorSpec("x", (1024,)),), (TensorSpec("y", (1024,)),))


def main() -> None:
    if sys.argv[1:2] == ["attack"]:
        attack(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
        return
    if sys.argv[1:2] == ["burn"]:
        burn(float(sys.argv[2]))
        return
    options = parser(__doc__).parse_args()
    rounds, seconds = (1, 6.0) if options.quick else (ROUNDS, SECONDS)
    with tempfile.TemporaryDirectory() as name:
        keys = Path(name) / "keys"
        create_credentials(keys)
        rows = [measure(kind, keys, rounds, seconds) for kind in KINDS]
    report("Strangers", rows, (__doc__ or "").rpartition("\n\n")[2], options.json)


def measure(kind: str, keys: Path, rounds: int, seconds: float) -> Row:
    """Return what one kind of attack costs."""
    tried, attacked, beside = 0, [], []
    with serving(keys) as (process, port), contextlib.closing(connect(port, keys)) as client:
        program = client.open(STAGE, None)
        rate(client, program, WARM_UP_S)
        before = process.memory_info().rss
        for _ in range(rounds):
            child = start("attack", kind, port, COUNT // rounds, seconds)
            begin = time.perf_counter()
            attacked.append(rate(client, program, seconds, child))
            attempts, cpu_s = child.communicate()[0].split()
            tried, share = tried + int(attempts), float(cpu_s) / (time.perf_counter() - begin)
            # An attacker may keep several cores busy.
            burners = [start("burn", share / math.ceil(share)) for _ in range(math.ceil(share))]
            beside.append(rate(client, program, min(seconds, 5.0)))
            for burner in burners:
                burner.kill()
                burner.wait()
        grown = process.memory_info().rss - before
    return {
        "strangers": kind,
        "tried": tried,
        "attacker_cores": share,
        "frames_per_s": median(attacked),
        "beside_per_s": median(beside),
        "ratio": median(attacked) / median(beside),
        "grown_mb": grown / 1e6,
    }


def rate(client: Connection, program: int, seconds: float, until: subprocess.Popen[str] | None = None) -> float:
    """Return the frames per second of a client, as long as a process runs, and no longer than some seconds."""
    array, count, begin = np.zeros(1024, np.float32), 0, time.perf_counter()
    # The process has to start.
    while (spent := time.perf_counter() - begin) < seconds and (until is None or until.poll() is None):
        client.run(program, STAGE, [array])
        count += 1
    return count / spent


def connect(port: int, keys: Path) -> Connection:
    return Connection(parse(f"remote://127.0.0.1:{port}/null?timeout=60&tls={keys / 'client'}"))


@contextlib.contextmanager
def serving(keys: Path) -> Iterator[tuple[psutil.Process, int]]:
    """Give a server's process and its port."""
    line = [sys.executable, "-m", "pipeline.cli", "serve", "--json", "--port", "0", "--tls", str(keys)]
    child = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert child.stdout is not None
    try:
        yield psutil.Process(child.pid), msgspec.json.decode(child.stdout.readline())["port"]
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def start(*arguments: object) -> subprocess.Popen[str]:
    """Start this file as another process."""
    return subprocess.Popen([sys.executable, __file__, *map(str, arguments)], stdout=subprocess.PIPE, text=True)


def burn(share: float) -> None:
    """Use a share of a core until somebody ends it."""
    while True:
        begin = time.process_time()
        wall = time.perf_counter()
        while time.process_time() - begin < 0.01:
            pass
        time.sleep(max(0.0, 0.01 / max(share, 1e-3) - (time.perf_counter() - wall)))


def attack(kind: str, port: int, count: int, seconds: float) -> None:
    """Come so many times, for so long at most, and print how many times it were, and the processor time."""
    deadline, tries = time.monotonic() + seconds, iter(range(count))
    made: list[int] = []
    lock = threading.Lock()

    def come() -> None:
        held: deque[socket.socket] = deque()
        while time.monotonic() < deadline:
            with lock:
                if next(tries, None) is None:
                    break
            with contextlib.suppress(OSError):
                held.append(ATTACKS[kind](port))
            made.append(1)
            if len(held) > HELD // THREADS:
                held.popleft().close()

    threads = [threading.Thread(target=come) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(len(made), time.process_time())


def come_silently(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=ATTEMPT_S)


def come_with_head(port: int) -> socket.socket:
    return _send(port, b"SoC1" + (4 << 20).to_bytes(4, "big") + bytes(4 << 20))


def come_with_token(port: int) -> socket.socket:
    greeting = msgspec.msgpack.encode(messages.Greeting(messages.PROTOCOL, "0", 1.0, "a wrong token of some length"))
    return _send(port, b"SoC1" + len(greeting).to_bytes(4, "big") + greeting)


def _send(port: int, content: bytes) -> socket.socket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    plain = socket.create_connection(("127.0.0.1", port), timeout=ATTEMPT_S)
    encrypted = context.wrap_socket(plain)
    with contextlib.suppress(OSError):
        encrypted.sendall(content)
        encrypted.recv(1)
    encrypted.close()
    return encrypted


ATTACKS = {"silent": come_silently, "heads": come_with_head, "tokens": come_with_token}

if __name__ == "__main__":
    main()
