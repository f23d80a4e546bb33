"""Topics: clusters and their names, checked against counts made by hand."""

import json
import random

import numpy as np
import pytest

from commands import run_command

pytest.importorskip("sklearn")


import pellucid
from pellucid.analysis import clustering
from refusals import refused

FLIGHTS = ["the flight was late", "our plane left the airport", "baggage lost at the airport after the flight"]
MEALS = ["the pasta was cold", "great pizza and a rude waiter", "dinner with soup and pasta"]


def reviews(count, seed=0):
    """Texts, and which of them are about flights."""
    draw = random.Random(seed)
    flights = [draw.random() < 0.4 for _ in range(count)]
    return [draw.choice(FLIGHTS if flight else MEALS) + f" {n}" for n, flight in enumerate(flights)], flights


def test_topics_are_the_two_subjects_and_named_by_their_words(static):
    texts, about_flights = reviews(200)
    result = pellucid.topics(static, texts, n=2)
    meals, flights = result
    assert [topic.texts for topic in result] == [about_flights.count(False), about_flights.count(True)]
    assert [label == 1 for label in result.labels] == about_flights
    assert {"airport", "flight"} & set(flights.name.split(", ")) and "pasta" in meals.name
    assert sum(topic.share for topic in result) == pytest.approx(1) and len(result) == 2


def test_counts_of_words_are_document_counts(static):
    texts, _ = reviews(120)
    texts[0] = "flight flight flight"  # counts once
    result = pellucid.topics(static, texts, n=3)
    for index, topic in enumerate(result):
        members = [text for text, label in zip(texts, result.labels) if label == index]
        others = [text for text, label in zip(texts, result.labels) if label not in (index, -1)]
        assert topic.texts == len(members) and all(example.text in members for example in topic.typical)
        for word in topic.words:
            assert word.texts == sum(word.word in text for text in members)
            assert word.others == sum(word.word in text for text in others)
            assert word.log_odds > 0 and -1 <= word.pull <= 1.000001


def test_a_topic_is_the_cluster_nearest_to_its_texts(static):
    texts, _ = reviews(90)
    result = pellucid.topics(static, texts, n=2)
    rows = static.encode(texts)
    means = np.stack([rows[np.array(result.labels) == topic].mean(axis=0) for topic in range(2)])
    assert (((rows[:, None] - means) ** 2).sum(axis=2).argmin(axis=1) == result.labels).mean() > 0.98
    for topic, mean in zip(result, means):
        assert topic.cohesion == pytest.approx(float((rows @ (mean / np.linalg.norm(mean)))[
            np.array(result.labels) == list(result).index(topic)].mean()), abs=1e-5)  # fmt: skip


def test_views_and_json_of_the_same_call(static):
    texts, _ = reviews(60)
    result = pellucid.topics(static, texts, n=2)
    data = json.loads(result.to_json())
    assert pellucid.topics(static, iter(texts), n=2).to_dict() == data
    assert data["kind"] == "topics" and len(data["labels"]) == 60 and data["topics"][0]["words"]
    assert list(result.to_frame()["texts"]) == [topic.texts for topic in result]
    assert "<script" not in result.to_html() and result.topics[0].name in str(result)


@pytest.mark.parametrize(
    ("first", "second", "is_one"),
    [
        ("fee", "fees", True), ("city", "cities", True), ("tax", "taxes", True), ("plan", "planning", True),
        ("pay", "payment", True), ("charge", "charged", True), ("bus", "buses", True),
        ("fee", "card", False), ("bank", "bankruptcy", False), ("cat", "category", False),
    ],
)  # fmt: skip
def test_two_forms_of_a_word_are_not_in_one_name(first, second, is_one):
    assert clustering._is_one_word(first, second) == clustering._is_one_word(second, first) == is_one


def test_a_guessed_word_is_in_no_name_and_is_named(static):
    texts, _ = reviews(100)
    texts = [f"{text} by Latisha" if "flight" in text else text for text in texts]
    result = pellucid.topics(static, texts, n=2)
    assert result.guessed == ("latisha",) and "latisha" not in " ".join(word.word for t in result for word in t.words)
    assert "only guesses: latisha. No name holds them" in " ".join(str(result).split())


def test_texts_without_a_known_word_have_no_topic(static):
    texts, _ = reviews(40)
    result = pellucid.topics(static, [*texts, "", "☃"], n=2)
    assert result.blank == 2 and result.labels[-2:] == (-1, -1)
    assert sum(topic.texts for topic in result) == 40 and "2 texts without a word" in str(result)


def test_sparse_models_have_topics_too():
    texts, about_flights = reviews(120)
    result = pellucid.topics(pellucid.load("lexicon-en"), texts, n=2)
    agreement = np.mean([(label == 1) == flight for label, flight in zip(result.labels, about_flights)])
    assert max(agreement, 1 - agreement) > 0.95


NO_TOPICS = [
    (["a text"] * 9, {}, "at least 10 texts, got 9"),
    (["a text"] * 20, {"n": 11}, "at most 10 topics"),
    (["a text"] * 20, {"n": 1}, "n is 1; it must be an integer, at least 2"),
    (["a text"] * 10 + [None], {}, "text 10 is NoneType"),
    ("a text", {}, "one string"),
]

test_what_cannot_be_is_answered = refused(
    *((lambda static, texts=texts, options=options: pellucid.topics(static, texts, **options), message)
      for texts, options, message in NO_TOPICS)
)  # fmt: skip


def test_the_command_reads_files(static, tmp_path):
    (texts, _), labels = reviews(60), tmp_path / "labels.csv"
    (tmp_path / "reviews.csv").write_text("body\n" + "".join(f"{text}\n" for text in texts))
    asked = ["topics", tmp_path / "reviews.csv", "--field", "body", "-o", labels, "-n", "2", "--json"]
    assert json.loads(run_command(*asked).stdout) == json.loads(pellucid.topics(static, texts, n=2).to_json())
    assert len(labels.read_text(encoding="utf-8-sig").splitlines()) == 61


def test_equal_texts_are_topics_without_a_warning(static, recwarn):
    result = pellucid.topics(static, ["the flight was late"] * 12, n=2)
    assert 1 <= len(result) <= 2 and sum(topic.texts for topic in result) == 12 and not recwarn.list
