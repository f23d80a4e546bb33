"""Reasons of an encoder in an index: word pairs from the stored vectors, without a pass of the encoder."""

import numpy as np
import pytest

import pellucid
from families import WORDS as WORDS_OF_FAMILIES
from families import key_token_model, static_lexicon_model
from pellucid import Index
from pellucid.errors import IndexFolderError, InputError
from pellucid.explain.rows import CONTEXT, EMBEDDING, SHARED, WORD_PAIR
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary

FAMILY_WORDS = [word for word in WORDS_OF_FAMILIES if word not in ("the", "on", "a")]
WORDS = [start + end for start in ("ba", "ce", "di", "fo", "gu") for end in ("ll", "ne", "rk", "st", "wn", "sh")]
QUERY = f"{WORDS[0]} {WORDS[7]}"


def table() -> StaticEmbedder:
    return StaticEmbedder(Vocabulary(WORDS), np.random.default_rng(3).normal(size=(len(WORDS), 8)).astype(np.float32))


def texts(count: int = 260) -> list[str]:
    chance = np.random.default_rng(1)
    return [" ".join(chance.choice(WORDS, chance.integers(3, 9))) for _ in range(count)]


class Encoder:
    """A function whose vectors depend on the words and a little on their order; it counts its calls."""

    def __init__(self, seed: int = 7) -> None:
        chance = np.random.default_rng(seed)
        self.matrix, self.common, self.calls = chance.normal(size=(8, 12)), chance.normal(size=12), 0
        self.order = 0.2 * chance.normal(size=12)

    def __call__(self, given: list[str]) -> np.ndarray:
        self.calls += 1
        return table().encode(given) @ self.matrix + self.common + np.outer([len(t) % 5 for t in given], self.order)


def fitted(encoder):
    """The function as a model with word reasons, fitted on the texts."""
    model = pellucid.load(encoder)
    model.fit_reasons(texts(), table=table(), show_progress_bar=False)
    return model


def made(folder, encoder, **options) -> Index:
    index = Index.create(folder, {"dense": encoder}, **options)
    index.add(texts(), ids=[f"d{n}" for n in range(260)])
    return index


def rows_of(hit) -> dict:
    return {row.key: row.contribution for row in hit.explain().rows}


def test_hits_have_word_pairs_and_the_encoder_reads_nothing_for_them(tmp_path):
    encoder = Encoder()
    with made(tmp_path / "index", fitted(encoder)) as index:
        hits = index.search(QUERY, 5)
        encoder.calls = 0
        for hit in hits:
            why = hit.explain()
            kinds = {row.kind for row in why.rows}
            assert {WORD_PAIR, SHARED, CONTEXT} <= kinds and EMBEDDING not in kinds and why.exact
            assert sum(row.contribution for row in why.rows) == pytest.approx(hit.score, abs=1e-6)
            dense = sum(row.contribution for row in why.rows if row.key[0] == "dense")
            assert dense == pytest.approx(hit.parts["dense"], abs=1e-6)
            assert hit.marks.text and hit.to_dict()["marks"]["text"]
        assert hits.why(1, 2).text3 == hits[1].text
        assert encoder.calls == 0


def test_word_weights_move_the_query_and_rows_still_add_up(tmp_path):
    with made(tmp_path / "index", fitted(Encoder()), bm25=False) as index:
        plain, moved = (index.score(QUERY, "d3", word_weights={WORDS[7]: factor}) for factor in (1, 0.25))
        before, after = rows_of(plain), rows_of(moved)
        assert sum(after.values()) == pytest.approx(moved.score, abs=1e-6) and moved.score != plain.score
        pairs = [key for key, row in zip(before, plain.explain().rows) if row.kind == WORD_PAIR]
        for key in pairs:
            factor = 0.25 if key[0] == WORDS[7] else 1
            assert after[key] == pytest.approx(factor * before[key], abs=1e-6)
        found = index.search(QUERY, 260, word_weights={WORDS[7]: 0.25})
        assert {hit.id: hit.score for hit in found}["d3"] == pytest.approx(moved.score, abs=1e-6)


def test_given_vectors_have_the_same_reasons_as_computed_ones(tmp_path, index_of):
    encoder = fitted(Encoder())
    index = index_of(
        texts(), ids=[f"d{n}" for n in range(260)], vectors={"dense": Encoder()(texts())}, models={"dense": encoder}
    )
    given = rows_of(index.score(QUERY, "d3"))
    with made(tmp_path / "own", encoder) as index:
        assert given == pytest.approx(rows_of(index.score(QUERY, "d3")), abs=1e-5)
    with pytest.raises(IndexFolderError, match="another model"):
        Index.open(tmp_path / "own", {"dense": Encoder(seed=8)})


def test_a_hit_is_measured_on_request_and_what_is_exact_stays(tmp_path):
    encoder = Encoder()
    with made(tmp_path / "index", fitted(encoder)) as index:
        hits = index.search(QUERY, 3)
        calls = encoder.calls
        assert hits[0].explain().measurement is None and encoder.calls == calls
        for hit in hits:
            why = hit.measured()
            assert why.score == hit.score and why.exact
            assert sum(row.contribution for row in why.rows) == pytest.approx(hit.score, abs=1e-6)
            assert why.measurement.n_texts > 2 and CONTEXT not in {row.kind for row in why.rows}
            exact = {row.key: row.contribution for row in why.rows if row.key[0] == "bm25"}
            assert exact == {key: value for key, value in rows_of(hit).items() if key[0] == "bm25"}
        assert encoder.calls - calls == 4  # the query once, and each hit
        again = hits.measured()
        assert [hit.explain() for hit in again] == [hit.measured() for hit in hits]
        assert [hit.id for hit in again] == [hit.id for hit in hits] and "dense: " in str(again.why(1, 2).rows[0].name)
        assert again.to_dict()["hits"][0]["score"] == hits[0].score
        weighted = index.search(QUERY, 1, word_weights={WORDS[0]: 0.2})
        with pytest.raises(InputError, match="word_weights"):
            weighted[0].measured()
        other = index.search(QUERY, 1, word_weights={WORDS[5]: 0.2})
        assert other[0].measured().score == other[0].score


def test_a_function_without_fitted_reasons_can_be_measured(tmp_path):
    with made(tmp_path / "index", Encoder(), bm25=False) as index:
        (hit,) = index.search(QUERY, 1)
        assert ({row.kind for row in hit.explain().rows}, {row.kind for row in hit.measured().rows}) == (
            {EMBEDDING},
            {WORD_PAIR, SHARED},
        )


STEER = {WORDS[3]: -0.5, f"{WORDS[12]} {WORDS[20]}": 0.3}


@pytest.mark.parametrize("bm25", [False, True])
def test_a_steered_query_is_the_sum_of_searches_and_its_reasons_say_so(index_of, bm25):
    index = index_of(
        texts(), ids=[f"d{n}" for n in range(260)], models={"dense": fitted(Encoder()), "static": table()}, bm25=bm25
    )
    hits = index.search(QUERY, 260, steer=STEER)
    plain = {hit.id: hit for hit in index.search(QUERY, 260)}
    moves = {text: {hit.id: hit for hit in index.search(text, 260)} for text in STEER}
    for hit in hits[::40]:
        expected = {name: plain[hit.id].parts[name] for name in hit.parts}
        for name in ("dense", "static"):
            expected[name] += sum(weight * moves[text][hit.id].parts[name] for text, weight in STEER.items())
        assert hit.parts == pytest.approx(expected, abs=1e-6)
        why = hit.explain()
        assert why.exact and sum(row.contribution for row in why.rows) == pytest.approx(hit.score, abs=1e-6)
        named = {row.name for row in why.rows if row.key[1] == "steer"}
        assert named == {
            f"{name}: {verb} of {text!r}" for name in ("dense", "static")
            for verb, text in zip(("less", "more"), STEER)
        }  # fmt: skip
        assert sum(group.contribution for group in why.groups()) == pytest.approx(hit.score, abs=1e-6)
        assert sum(row.contribution for row in hit.measured().rows) == pytest.approx(hit.score, abs=1e-6)
        assert index.score(QUERY, hit.id, steer=STEER).score == pytest.approx(hit.score, abs=1e-6)
    before, after = rows_of(plain[hits[0].id]), rows_of(hits[0])
    assert {key: after[key] for key in before} == pytest.approx(before, abs=1e-6)  # the query's own rows stay
    assert index.search(QUERY, 5, steer={WORDS[3]: 0, WORDS[4]: 0.0}).to_dict() == index.search(QUERY, 5).to_dict()


CHECKED = {
    "bm25": ({}, WORDS, {}),
    "static, weighted": ({"static": table}, WORDS, {"word_weights": {WORDS[7]: 0.3}}),
    "static alone": ({"static": table}, WORDS, {"weights": {"static": 1}}),
    "steered": ({"dense": lambda: fitted(Encoder()), "static": table}, WORDS, {"steer": STEER}),
    "lexicon": ({"lexicon": static_lexicon_model}, FAMILY_WORDS, {}),
    "key tokens": ({"key tokens": key_token_model}, FAMILY_WORDS, {}),
}


@pytest.mark.parametrize(("models", "words", "options"), CHECKED.values(), ids=CHECKED)
def test_a_checked_line_has_the_score_of_the_shortened_document(index_of, models, words, options):
    chance, n_checked = np.random.default_rng(5), 0
    documents = [" ".join(chance.choice(words, chance.integers(3, 9))) for _ in range(40)]
    index = index_of(
        documents, ids=[f"d{n}" for n in range(40)], models={name: model() for name, model in models.items()}
    )
    for number, document in enumerate(documents[:8]):
        id, query, stored = f"d{number}", " ".join([*chance.choice(words, 2), *document.split()[:2]]), set[str]()
        while True:  # the shortened documents are in the index, too, whose statistics count
            hit = index.score(query, id, **options)
            lines = [line for line in hit.check().explain().groups() if line.without is not None]
            shortened = [
                " ".join(word for word in hit.text.split() if word not in left_out)
                for left_out in (" ".join(hit.text[slice(*span)] for span in line.spans2).split() for line in lines)
            ]
            if stored >= {*shortened}:
                break
            stored |= {*shortened}
            index.add([*{*shortened} - {""}], ids=[*{*shortened} - {""}])
        without = [line.without for line in lines]
        assert without == pytest.approx(
            [index.score(query, text, **options).score if text else 0.0 for text in shortened], abs=1e-6
        ) and (without == sorted(without) or hit.score < 0)
        n_checked += len(lines)
    assert n_checked > 5


def test_a_given_vector_is_checked_where_it_is_the_models(index_of):
    index = index_of(
        texts(),
        ids=[f"d{n}" for n in range(260)],
        vectors={"dense": Encoder()([*texts(259), "other"])},
        models={"dense": fitted(Encoder())},
    )
    (hit,) = index.search(QUERY, 1)
    assert hit.lines()[0].without is None and "Estimated, not checked." in hit.summary()
    (first, *_), summary = hit.check().lines(), hit.check().summary()
    assert f" {first.without:.2f})" in summary and hit.check().to_dict()["groups"][0]["without"] == first.without
    with pytest.raises(InputError, match="'d259' in the part 'dense' was given"):
        index.score(texts()[259].split()[0], "d259").check().summary()
