"""Random problems whose stages share much: devices in turns, borrowed ones, links, memories, and unlike cores."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
from numpy.random import Generator

from pipeline.split.planning.problem.arrays import Array
from pipeline.split.planning.problem.choice import Choice
from pipeline.split.planning.problem.problem import MemoryLimit, Problem, Processor, Resource

CPU, GPU, NPU = range(3)


def shared_problem(seed: int) -> Problem:
    """Return a problem of 3 to 5 items on cores of two kinds, a GPU where stages take turns, and an NPU.

    Resources: turns on the GPU; the link to its memory; the bytes per second of the host's; the NPU, which the
    stages on cores borrow for some of their items.
    """
    random = np.random.default_rng(seed)
    items = int(random.integers(3, 6))
    cores, places = int(random.integers(1, 4)), int(random.integers(1, 4))
    processors = (
        Processor("cpu", cores),
        Processor("gpu", places, overlaps=bool(random.integers(2))),
        Processor("npu"),
    )
    base = random.exponential(1, items)
    gpu, npu = (base * random.uniform(0.1, 1.2, items) for _ in range(2))
    for seconds in (gpu, npu):
        seconds[random.random(items) < 0.2] = np.inf
    traffic = random.exponential(random.choice([0.05, 0.3, 0.6]), items)
    watts = random.uniform(0.1, 5, 3)
    choices = [
        *_cpu_choices(random, base, cores, watts[CPU], traffic),
        Choice(GPU, (0, 1, 0), gpu, watts=watts[GPU], loads={0: gpu}),
        Choice(NPU, (0, 0, 1), npu, watts=watts[NPU], loads={2: traffic, 3: npu}),
        *_borrowing_choices(base, npu, cores, watts, traffic),
    ]
    crossing, layout = random.exponential(0.3, items + 1), random.exponential(0.05, items + 1)
    enter, leave = _borders(crossing, layout)
    on_link = [np.where(values == crossing, values, 0.0) for values in (enter, leave)]
    chain = Problem(
        processors,
        tuple(choices),
        enter,
        leave,
        resources=(Resource("gpu"), Resource("link", "link"), Resource("host", "memory"), Resource("npu")),
        enter_loads={1: on_link[0]},
        leave_loads={1: on_link[1]},
    )
    if random.random() < 0.4:
        chain = _limit_memories(random, chain)
    if random.random() < 0.3:
        count = int(random.integers(1, min(items, 4) + 1))
        chain = replace(chain, stages=((CPU, GPU, NPU),) * count)
    return chain


def _cpu_choices(random: Generator, base: Array, cores: int, watts: float, traffic: Array) -> list[Choice]:
    """Return some threads and replicas; the last core is slower than the others."""
    slower = float(random.uniform(1, 4))
    choices = []
    for threads, replicas in product(range(1, cores + 1), repeat=2):
        if threads * replicas <= cores:
            seconds = base * (0.2 + 0.8 / threads)
            choice = Choice(CPU, (threads * replicas, 0, 0), seconds, replicas, threads, watts, loads={2: traffic})
            choices.append(choice)
            if replicas > 1:
                choices.append(replace(choice, factors=(1.0,) * (replicas - 1) + (slower,)))
    return choices


def _borrowing_choices(base: Array, npu: Array, cores: int, watts: Array, traffic: Array) -> list[Choice]:
    """Return stages that compute each item on their core or on the NPU, by different prices of the NPU."""
    size = len(base) + 1
    choices = []
    for price in (0.0, 0.5, 2.0):
        spans, loads = np.full((size, size), np.inf), np.zeros((size, size))
        for begin in range(size):
            for end in range(begin + 1, size):
                # Two ways to be at the end of an item, by where it was computed: (cost, seconds, load).
                ways = {False: (0.0, 0.0, 0.0), True: (np.inf, 0.0, 0.0)}
                for item in range(begin, end):
                    ways = {
                        borrows: min(
                            (
                                cost + move + seconds * (1 + price * borrows),
                                total + move + seconds,
                                load + seconds * borrows,
                            )
                            for before, (cost, total, load) in ways.items()
                            for move in [0.05 * (before != borrows)]
                        )
                        for borrows, seconds in ((False, base[item]), (True, npu[item]))
                    }
                _, spans[end, begin], loads[end, begin] = min(ways.values())
        least = np.minimum(base, npu)
        for replicas in range(1, cores + 1):
            choices.append(
                Choice(CPU, (replicas, 0, 0), least, replicas, 1, watts[CPU], spans, loads={3: loads, 2: traffic})
            )
    return choices


def _borders(crossing: Array, layout: Array) -> tuple[Array, Array]:
    """Return what borders cost: the GPU has a memory of its own, and the others change layouts."""
    enter, leave = np.zeros((4, 3, len(crossing))), np.zeros((3, 4, len(crossing)))
    for end, processor in product(range(4), range(3)):
        elsewhere = (processor == GPU) != (end == GPU)
        if elsewhere:
            enter[end, processor] = leave[processor, end] = crossing if processor == GPU else 0.0
        elif end < 3:
            enter[end, processor] = leave[processor, end] = layout
    return enter, leave


def _limit_memories(random: Generator, chain: Problem) -> Problem:
    items = chain.items
    host = MemoryLimit(random.uniform(0.7, 2.5) * items, (CPU, NPU))
    return replace(
        chain,
        memories=(host, MemoryLimit(random.uniform(0.5, 1.5) * items, (GPU,))),
        parameters=random.uniform(0, 2, items),
        workspace=random.uniform(0, 0.5, items),
        queue_bytes=random.uniform(0, 0.3, items + 1),
    )
