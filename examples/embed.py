"""In a program of one's own: frames from anywhere, results to anywhere.  Needs digits.bundle; see README.md here."""

import numpy as np

import pipeline


def frames():
    for number in range(300):
        yield np.random.default_rng(number).random((1, 1, 32, 32), np.float32)


with pipeline.load("digits.bundle", admission="block") as running:
    # In order, and never more frames inside than there is room for.
    for number, scores in enumerate(running.map(frames())):
        if number % 100 == 0:
            print(f"frame {number}: {scores.argmax()}")
    statistics = running.statistics()
latency_ms = statistics.latency_s.p50 * 1e3
print(f"{statistics.delivered} frames, {statistics.frames_per_s:.0f} frames/s, latency p50 {latency_ms:.2f} ms")
