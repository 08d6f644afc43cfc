"""Every model is asked what its outputs may be, whatever they are."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.core.model_card import ModelCard
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
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
@pytest.mark.one_in(4)
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


@pytest.mark.parametrize(
    ("family", "size", "shapes"),
    [
        ("yolox", (64, 64), [(1, 84, 8)]),
        ("yolov5", (64, 64), [(1, 252, 8)]),
        ("yolov8", (64, 64), [(1, 7, 84)]),
        ("fastestdet", (64, 64), [(1, 8, 4, 4)]),
        ("rtdetr", (64, 64), [(1, 300, 3), (1, 300, 4)]),
        ("detr", (64, 64), [(1, 100, 4), (1, 100, 4)]),
        ("classes", (64, 64), [(1, 3)]),
        ("mask", (64, 64), [(1, 3, 64, 64)]),
    ],
)
def test_labels_of_another_number_than_the_classes_are_refused(
    family: str, size: tuple[int, int], shapes: list[tuple[int, ...]]
) -> None:
    outputs = [TensorSpec(f"box{number}" if number else "y", shape, "float32") for number, shape in enumerate(shapes)]
    make_decoder(ModelCard(decoder=family), ModelInterface(size, outputs, ("a", "b", "c")))
    with pytest.raises(InputError, match="2 labels for the 3 classes of"):
        make_decoder(ModelCard(decoder=family), ModelInterface(size, outputs, ("a", "b")))
