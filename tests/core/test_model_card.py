"""Cards of several origins, merged field by field."""

from __future__ import annotations

from pipeline.core.model_card import ModelCard, Preparation


def test_the_first_card_wins_and_the_second_fills_its_gaps() -> None:
    first = ModelCard.of("options", labels=("cat",))
    merged = first.merge(ModelCard.of("metadata", labels=("dog",), task="detect"))
    assert (merged.labels, merged.task) == (("cat",), "detect")
    assert merged.origins == {"labels": "options", "task": "metadata"}


def test_a_single_rule_leaves_the_other_rules_to_the_other_card() -> None:
    usual = ModelCard.of("guess: usual", preparation=Preparation(resize="letterbox", channels="bgr", scale=255))
    merged = ModelCard.of("options", preparation={"channels": "rgb"}).merge(usual)
    assert merged.preparation == Preparation(resize="letterbox", channels="rgb", scale=255)
    assert merged.origins == {"preparation.channels": "options", "preparation": "guess: usual"}


def test_a_complete_preparation_stays_as_it_is() -> None:
    card = ModelCard(preparation=Preparation(channels="bgr"))
    assert card.merge(ModelCard.of("metadata", preparation={"resize": "crop"})) == card


def test_rules_of_three_cards_meet() -> None:
    cards = [
        ModelCard.of(str(number), preparation=rules)
        for number, rules in enumerate(({"fill": 0}, {"fill": 1, "scale": 255}, {"scale": 1, "resize": "crop"}))
    ]
    merged = cards[0].merge(cards[1]).merge(cards[2])
    assert merged.preparation == Preparation(fill=0, scale=255, resize="crop")
    assert merged.origins == {"preparation.fill": "0", "preparation.scale": "1", "preparation.resize": "2"}
    usual = ModelCard.of("usual", preparation=Preparation(channels="bgr"))
    assert merged.merge(usual).preparation == Preparation(fill=0, scale=255, resize="crop", channels="bgr")
    # Complete now: nobody else adds to it.
    assert merged.merge(usual).merge(ModelCard.of("later", preparation={"margin": "corner"})) == merged.merge(usual)


def test_parameters_go_with_their_decoder() -> None:
    metadata = ModelCard.of("metadata", decoder="ssd", parameters={"score": 0.5, "top": 10})
    assert ModelCard.of("options", decoder="yolox").merge(metadata).parameters == {}
    same = ModelCard.of("options", decoder="ssd", parameters={"score": 0.1}).merge(metadata)
    assert same.parameters == {"score": 0.1, "top": 10}
    without_decoder = ModelCard.of("options", parameters={"score": 0.1}).merge(metadata)
    assert (without_decoder.decoder, without_decoder.parameters) == ("ssd", {"score": 0.1, "top": 10})


def test_outputs_may_stay_arrays() -> None:
    assert not ModelCard().decodes
    assert not ModelCard(decoder="none").decodes
    assert ModelCard(decoder="yolox").decodes
