from __future__ import annotations

import numpy as np
import pytest

from pipeline.core.model_card import ModelCard
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.io.decoders.activation import activate
from pipeline.io.decoders.base import ModelInterface
from pipeline.io.decoders.registry import complete_card, make_decoder, parse_decoder
from pipeline.io.results import Classes, Result


def decode(scores: list[float], **parameters: object) -> Result:
    interface = ModelInterface((8, 8), [TensorSpec("y", (1, len(scores)))], ["cat", "dog", "owl"])
    return make_decoder(ModelCard(decoder="classes", parameters=parameters), interface)({"y": np.array([scores])})


def test_the_best_classes_come_first() -> None:
    result = decode([0.125, 0.75, 0.125])
    assert isinstance(result, Classes)
    assert (result.classes.tolist(), result.names) == ([1, 0, 2], ["dog", "cat", "owl"])
    assert result.scores.tolist() == [0.75, 0.125, 0.125]
    assert decode([0.125, 0.75, 0.125], top=1).summary() == "dog 0.75"


@pytest.mark.parametrize(
    ("values", "activation", "scores"),
    [
        # Logits are recognised by values outside of 0 to 1; scores of several labels need not add up to 1.
        ([0, np.log(3), 0], "auto", [0.2, 0.6, 0.2]),
        ([0.5, 0.75, 1.0], "auto", [0.5, 0.75, 1.0]),
        # A quantised probability may miss 1 by its scale.
        ([0.0, 1.003, 0.0], "auto", [0.0, 1.003, 0.0]),
        ([0, 0, 0], "softmax", [1 / 3] * 3),
        ([0, np.log(3), -1000], "sigmoid", [0.5, 0.75, 0]),
        ([-2, 3, 5], "none", [-2, 3, 5]),
    ],
)
def test_logits_become_scores(values: list[float], activation: str, scores: list[float]) -> None:
    np.testing.assert_allclose(activate(np.array(values), activation, 0), scores, atol=1e-6)


def test_a_single_logit_has_a_sigmoid() -> None:
    assert activate(np.array([[-3.0, 0, np.log(3)]]), "auto", 0).tolist()[0][1:] == [0.5, 0.75]


def test_a_classifier_is_recognised_and_certain_with_its_labels() -> None:
    interface = ModelInterface((8, 8), [TensorSpec("y", (1, 3, 1, 1))], ["cat", "dog", "owl"])
    card = complete_card(ModelCard(), interface)
    assert (card.decoder, card.task) == ("classes", "classify")
    assert "[1, 3, 1, 1] has a score for each class" in card.origins["decoder"]
    # Without a picture there is nothing to classify for a decoder of pictures.
    assert complete_card(ModelCard(), ModelInterface((0, 0), [TensorSpec("y", (1, 3))])).decoder == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("classes:top=0", "top is 0; it must be 1 or more"),
        ("classes:activation=tanh", "it must be auto, none, sigmoid or softmax"),
        ("classes:topp=3", "did you mean 'top'"),
    ],
)
def test_parameters_are_checked(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_decoder(text)


def test_labels_of_another_length_are_refused() -> None:
    with pytest.raises(InputError, match="3 labels for the 2 classes"):
        decode([0.5, 0.5])
