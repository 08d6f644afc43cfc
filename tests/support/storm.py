"""A storm: a pipeline with random options under random calls from many threads, and what must hold all the same.

    python -m tests.support.storm SEED [ROUNDS]

runs rounds from SEED on; a failure names the seed of its round.  It is a program of its own, as it interrupts its main
thread, forks, and ends with the stack of each thread when one hangs.
"""

from __future__ import annotations

import faulthandler
import logging
import random
import signal
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pipeline.scheduler import Pipeline
from pipeline.scheduler.trace import Trace
from tests.support.storm_calls import Caller, shield
from tests.support.storm_checks import Leftovers, Records
from tests.support.storm_stages import CORES, Weather, build_kernels, make_bundle, make_plan

HANG_S = 60.0
"""Seconds after which a round counts as hanging."""

KINDS = (("null",), ("null", "simulated"), ("cpu",), ("null", "simulated", "cpu", "cpu"))


def make_options(chance: random.Random) -> dict[str, Any]:
    """Return options that go together."""
    admission = chance.choice(("block", "block", "latest", "drop-oldest", "deadline"))
    return {
        "admission": admission,
        "waiting": 0 if admission == "block" else chance.choice((0, 1, 3)),
        "on_error": "stop" if chance.random() < 0.15 else "skip",
        "stage_timeout": chance.choice((None, 0.04, 0.04, 10.0, sys.maxsize)),
        "on_timeout": "fail-pipeline" if chance.random() < 0.2 else "fail-frame",
        "switch_interval": chance.choice((None, None, 0.0005)),
        "trace": Trace() if chance.random() < 0.2 else None,
    } | ({"deadline": chance.choice((0.001, 0.1, 10.0))} if admission == "deadline" else {})


class Round:
    """One pipeline, from its start to its end.

    Parameters
    ----------
    seed : int
        Of all that is random but the threads' order.
    """

    def __init__(self, seed: int) -> None:
        chance = self._chance = random.Random(seed)
        self._kinds = chance.choice(KINDS)
        self.options, self._weather = make_options(chance), Weather(seed, chance.choice((0.0, 0.02, 0.1)))
        self.records, self._forks = Records(make_plan(chance, self._kinds)), chance.random() < 0.3
        self._calling = True

    def run(self) -> dict[str, int]:
        """Let the storm blow, and return how the frames ended."""
        chance, bundle = self._chance, make_bundle(self.records.plan, 1)
        running = Pipeline(bundle.plan, bundle.codes, create=self._weather.create, **self.options)
        threads = [
            threading.Thread(target=self._caller(running).call, name=f"user {number}")
            for number in range(chance.randint(0, 3))
        ]
        calm = threading.Event()
        if chance.random() < 0.5:
            threads.append(threading.Thread(target=_interrupt, args=(calm, random.Random(chance.random()))))
        caller = self._caller(running, interrupted=True)
        signal.signal(signal.SIGINT, self._raise_interrupt)
        shield(lambda: _start(threads))
        try:
            caller.call()
        except KeyboardInterrupt:  # between two calls
            pass
        finally:
            self._calling = False
        calm.set()
        for thread in threads:
            thread.join()
        for _ in range(chance.randint(1, 3)):
            running.close(**chance.choice(({}, {"drain": False}, {"timeout": 0.01})))
        return self.records.check_ends(running)

    def _raise_interrupt(self, *_: object) -> None:
        # What comes behind the last call would tear the end of the round.
        if self._calling:
            raise KeyboardInterrupt

    def _caller(self, running: Pipeline, *, interrupted: bool = False) -> Caller:
        chance = random.Random(self._chance.random())
        return Caller(running, self.records, self._kinds, chance, forks=self._forks, interrupted=interrupted)


def _interrupt(calm: threading.Event, chance: random.Random) -> None:
    main = threading.main_thread().ident
    assert main is not None
    while not calm.wait(chance.uniform(0.0, 0.01)):
        signal.pthread_kill(main, signal.SIGINT)


def _start(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.start()


def main(first: int, rounds: int) -> int:
    """Run the rounds, and return how many failed."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    for inputs in (1, 2):
        for cores in range(1, len(CORES) + 1):
            build_kernels(inputs, cores).module()
    faulthandler.dump_traceback_later(HANG_S, exit=True)  # which has a thread
    leftovers, failures, totals = Leftovers(), 0, Counter[str]()
    for seed in range(first, first + rounds):
        # Also where this thread waits in C.
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        storm = Round(seed)
        totals.update(storm.run())
        if wrong := storm.records.wrong + leftovers.check():
            failures += 1
            print(f"seed {seed} ({storm.options}): {'; '.join(wrong[:5])}", flush=True)
    faulthandler.cancel_dump_traceback_later()
    print(f"{rounds} rounds: {dict(totals)}")
    return failures


if __name__ == "__main__":
    sys.exit(1 if main(int(sys.argv[1]), int((sys.argv[2:] or ["100"])[0])) else 0)
