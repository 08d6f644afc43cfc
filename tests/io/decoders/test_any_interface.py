"""Every model is asked what its outputs may be, whatever they are."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.core.model_card import ModelCard
from pipeline.core.plan.plan import TensorSpec
from pipeline.io.decoders.base import ModelInterface
from pipeline.io.decoders.registry import candidates, complete_card, load_families, make_decoder

SIZES = ((0, 0), (1, 1), (32, 32), (320, 240), (416, 416), (5, 640))
EXTENTS = (0, 1, 2, 3, 4, 5, 6, 7, 10, 16, 17, 32, 84, 85, 100, 255, 300, 1050, 3549, 8400)


def random_interface(seed: int) -> ModelInterface:
    generator = np.random.default_rng(seed)
    outputs = [
        TensorSpec(f"output{number}", tuple(map(int, generator.choice(EXTENTS, generator.integers(0, 6)))), "float32")
        for number in range(generator.integers(0, 13))
    ]
    labels = tuple(map(str, range(generator.choice([0, 0, 1, 80]))))
    return ModelInterface(SIZES[generator.integers(len(SIZES))], outputs, labels)


@pytest.mark.parametrize("block", range(10))
def test_no_outputs_confuse_a_family(block: int) -> None:
    for seed in range(300 * block, 300 * (block + 1)):
        interface = random_interface(seed)
        for name, guess in candidates(interface).items():
            assert guess.reason
            # What is recognised can be decoded, with the parameters of the guess; labels may be too few.
            if not interface.labels:
                make_decoder(ModelCard(decoder=name, parameters=guess.parameters), interface)
        assert complete_card(ModelCard(), interface).decoder in {"", *load_families()}


def test_a_model_without_known_outputs_has_no_decoder() -> None:
    assert candidates(ModelInterface((0, 0), ())) == {}
