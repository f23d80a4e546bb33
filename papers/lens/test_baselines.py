"""The paper's baselines, against plain transformers on tiny models."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiny_models import byte_level, sentence_piece, tiny_model, word_piece

torch = pytest.importorskip("torch")

from papers.lens.baselines import ECHO_SETTINGS, DenseEmbedder, echo, promptreps, promptreps_dense, splade
from papers.lens.own_words import FUNCTION_WORDS, OwnWordsEmbedder, own_word_ids
from pellucid.errors import InputError, ModelFolderError
from pellucid.lexicon import LexiconSettings
from pellucid.transformer.backbone import prepare
from pellucid.transformer.reading import Reader

TEXT = "The doctor gave the sick boy medicine."
TEXTS = [TEXT, "swift cars", "", "a man is riding the horse on the beach, quickly"]
TOKENIZERS = {"gpt_neox": byte_level, "mistral": sentence_piece, "bert": word_piece}
LENGTH = 512


def fresh(kind):
    """A tokenizer and a model, the same at each call."""
    tokenizer = TOKENIZERS[kind]()
    return tokenizer, tiny_model(kind, len(tokenizer), max_position_embeddings=LENGTH)


def backbone_of(kind, attention="causal"):
    tokenizer, model = fresh(kind)
    return prepare(model, tokenizer, attention="bidirectional" if kind == "bert" else attention, device="cpu")


@pytest.fixture(scope="module")
def causal():
    return backbone_of("gpt_neox")


@pytest.fixture(scope="module")
def bert():
    return backbone_of("bert")


def plain(kind, ids):
    """Logits [L, vocabulary] and last states [L, d] as transformers gives them, each token seeing those before it."""
    _, model = fresh(kind)
    with torch.no_grad():
        out = model(input_ids=torch.tensor([ids]), output_hidden_states=True)
        base = model.base_model(input_ids=torch.tensor([ids])).last_hidden_state
    assert torch.allclose(out.hidden_states[-1], base) or kind == "bert"
    return out.logits[0].numpy(), base[0].numpy()


def saturated(logits):
    return np.log1p(np.maximum(logits, 0))


def unit(vector):
    return vector / np.linalg.norm(vector)


def over_tokens(model, row):
    """A row over the clusters of one token as a row over the vocabulary."""
    assignment = model.clusters.assignment
    spread = np.zeros(len(assignment))
    spread[assignment >= 0] = row.toarray()[0][assignment[assignment >= 0]]
    return spread


def only_clustered(model, weights):
    return np.where(model.clusters.assignment >= 0, weights, 0)


def plain_ids(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


# SPLADE


def test_splade_of_an_encoder_is_the_maximum_of_its_logits(bert):
    ids = [1, *plain_ids(bert.tokenizer, TEXT), 2]
    model = splade(bert)
    expected = only_clustered(model, saturated(plain("bert", ids)[0][1:-1]).max(axis=0))
    assert over_tokens(model, model.encode([TEXT])) == pytest.approx(unit(expected), abs=1e-5)


@pytest.mark.parametrize("kind", ["gpt_neox", "mistral"])
def test_splade_of_a_decoder_reads_each_token_one_position_before(kind):
    model = splade(backbone_of(kind))
    start, end = (0, 0) if kind == "gpt_neox" else (1, 2)
    ids = [start, *plain_ids(model.backbone.tokenizer, TEXT), end]
    expected = only_clustered(model, saturated(plain(kind, ids)[0][:-2]).max(axis=0))
    assert over_tokens(model, model.encode([TEXT])) == pytest.approx(unit(expected), abs=1e-5)


# Echo


def second_time(tokenizer, text):
    """How many tokens hold something of the second time: a byte-level tokenizer splits before the space ahead."""
    ids = plain_ids(tokenizer, " " + text)
    return len(ids) - (tokenizer.decode(ids[:1]) == " ")


@pytest.mark.parametrize("role", ["document", "query", "told"])
def test_echo_pools_the_second_time_alone(causal, role):
    model = echo(causal)
    if role == "told":
        model = model.with_instruction("Find it")
    around = {
        "document": "Document: {}\nDocument again: {}",
        "query": "Query: {}\nQuery again: {}",
        "told": "Instruct: Find it,\nQuery: {}\nQuery again: {}",
    }[role]
    ids = [0, *plain_ids(causal.tokenizer, around.format(TEXT, TEXT)), 0]
    n = second_time(causal.tokenizer, TEXT)
    expected = only_clustered(model, saturated(plain("gpt_neox", ids)[0][-n - 2 : -2]).max(axis=0))
    found = model.encode_document([TEXT]) if role == "document" else model.encode_query([TEXT])
    assert over_tokens(model, found) == pytest.approx(unit(expected), abs=1e-5)


def first_pooled(model, text):
    (reading,) = Reader(model.backbone.tokenizer, model.settings).read([text], instructed=False)
    ids, mask, _ = model.backbone.padded([reading])
    with torch.no_grad():
        return model.backbone.states(ids, mask)[0, reading.first + 1].numpy()


def test_echo_lets_a_decoder_know_later_words(causal):
    one, other = "rapid cars swift", "rapid cars medicine"
    assert first_pooled(splade(causal), one) == pytest.approx(first_pooled(splade(causal), other), abs=1e-6)
    assert np.abs(first_pooled(echo(causal), one) - first_pooled(echo(causal), other)).max() > 1e-3


@pytest.mark.parametrize(
    "text",
    [
        "Document again: the car",
        "car\nDocument again: car",
        "{text} and {instruction}",
        "a <|endoftext|> b",
        "Document: Document again:",
        " leading and trailing ",
        'car". Use one most important word. The word is: "',
    ],
)
def test_a_template_inside_a_text_is_text(causal, text):
    tokenizer = causal.tokenizer
    for model in (echo(causal), promptreps(causal)):
        (reading,) = Reader(tokenizer, model.settings).read([text], instructed=False)
        own = reading.ids[reading.first + 1 : reading.first + 1 + len(reading.spans)]
        decoded = tokenizer.backend_tokenizer.decode(own, skip_special_tokens=False)
        assert decoded.strip() == text.strip()
        behind = model.settings.template.rpartition("{text}")[2]
        tail = plain_ids(tokenizer, behind) + [0] * bool(model.settings.end_token)
        assert reading.ids[len(reading.ids) - len(tail) :] == tail
        assert 0 not in own


@given(
    st.text(max_size=25) | st.sampled_from(["<|endoftext|>a", "again: again:", " a", "a\n", "\n"]),
    st.sampled_from([ECHO_SETTINGS.template, "{text} {text}", "{text}\n{text}!", "a{text}b{text}c"]),
    st.booleans(),
)
def test_any_text_is_given_whole_both_times(text, template, shift):
    reader = Reader(_BYTES, LexiconSettings(template=template, shift=shift, end_token=False, max_length=500))
    (reading,) = reader.read([text], instructed=False)
    start = reading.first + shift
    own = reading.ids[start : start + len(reading.spans)]

    def decoded(ids):
        return _BYTES.backend_tokenizer.decode(ids, skip_special_tokens=False)

    clean = text.encode("utf-8", "replace").decode("utf-8")
    assert decoded(own).strip() in (
        clean.strip(),
        f"b{clean}c".strip(),
        f"b{clean}".strip(),
        f"{clean}c".strip(),
        f"{clean}!".strip(),
    )
    assert decoded(reading.ids[shift:]) == template.replace("{text}", clean)


_BYTES = byte_level()


def test_a_long_text_is_cut_both_times(causal):
    model = echo(causal).with_settings(replace(ECHO_SETTINGS, max_length=60))
    text = "cars and horses " * 30
    (reading,) = Reader(causal.tokenizer, model.settings).read([text], instructed=False)
    n = len(reading.spans)
    assert 58 <= len(reading.ids) <= 60 and reading.cut > 0
    second = reading.ids[reading.first + 1 : reading.first + 1 + n]
    before = causal.tokenizer.backend_tokenizer.decode(reading.ids[: reading.first + 1])
    again = causal.tokenizer.backend_tokenizer.decode(second)
    assert before.count(again) == 1 and before.endswith("Document again:") and reading.ids[-1] == 0
    with pytest.warns(UserWarning, match=rf"1 of 1 texts are longer than the 60 .*{reading.cut} tokens"):
        model.encode_document([text])
    with pytest.raises(InputError, match="the prompt fills it"):
        echo(causal).with_settings(replace(ECHO_SETTINGS, max_length=10)).encode(["car"])


def test_echo_of_an_encoder_pools_the_second_time(bert):
    model = echo(bert)
    own, around = plain_ids(bert.tokenizer, TEXT), ("Document:", "Document again:")
    ids = [1, *plain_ids(bert.tokenizer, around[0]), *own, *plain_ids(bert.tokenizer, around[1]), *own, 2]
    expected = only_clustered(model, saturated(plain("bert", ids)[0][-len(own) - 1 : -1]).max(axis=0))
    assert over_tokens(model, model.encode_document([TEXT])) == pytest.approx(unit(expected), abs=1e-5)


def test_a_template_holds_the_text_twice_at_most():
    with pytest.raises(InputError, match="once, or twice"):
        LexiconSettings(template="{text}{text}{text}")


# PromptReps

PASSAGE = (
    'You are an AI assistant that can understand human language. Passage: "{}". Use one most important word to '
    'represent the passage in retrieval task. Make sure your word is in lowercase. The word is: "'
)
WORDS = ["doctor", "gave", "sick", "boy", "medicine"]


def test_promptreps_weighs_the_texts_own_words(causal):
    model = promptreps(causal)
    logits, states = plain("gpt_neox", [0, *plain_ids(causal.tokenizer, PASSAGE.format(TEXT))])
    kept = [token for word in WORDS for token in plain_ids(causal.tokenizer, word)]
    expected = np.zeros(logits.shape[1])
    expected[kept] = saturated(logits[-1])[kept]
    assert (expected > 0).sum() >= 3
    assert over_tokens(model, model.encode_document([TEXT])) == pytest.approx(unit(expected), abs=1e-5)
    dense = promptreps_dense(causal).encode_document(TEXT)
    assert dense == pytest.approx(unit(states[-1]), abs=1e-5)


def test_a_query_is_asked_about_as_a_query(causal):
    asked = PASSAGE.format("swift cars").replace("Passage", "Query").replace("the passage", "the query")
    states = plain("gpt_neox", [0, *plain_ids(causal.tokenizer, asked)])[1]
    model = promptreps_dense(causal)
    assert model.encode_query("swift cars") == pytest.approx(unit(states[-1]), abs=1e-5)
    told = model.with_instruction("Find it")
    assert told.encode_query("swift cars") == pytest.approx(model.encode_query("swift cars"), abs=1e-6)


def test_a_text_of_function_words_keeps_its_ten_strongest_tokens(causal):
    model = promptreps(causal)
    logits, _ = plain("gpt_neox", [0, *plain_ids(causal.tokenizer, PASSAGE.format("is it so?"))])
    weights = only_clustered(model, saturated(logits[-1]))
    expected = np.where(weights >= np.sort(weights)[-10], weights, 0)
    assert over_tokens(model, model.encode_document(["is it so?"])) == pytest.approx(unit(expected), abs=1e-5)


def test_own_words_are_lower_case_and_without_function_words():
    tokenizer = byte_level().backend_tokenizer
    expected = [n for word in ("cars", "don", "horse") for n in tokenizer.encode(word).ids if word != "don"]
    assert own_word_ids("Don't the CARS, cars horse?!", tokenizer) == tuple(dict.fromkeys(expected))
    assert own_word_ids("the, of", tokenizer) == own_word_ids("", tokenizer) == ()
    assert "the" in FUNCTION_WORDS and all(word == word.lower() for word in FUNCTION_WORDS)


@pytest.mark.parametrize("takes_system", [True, False])
def test_a_chat_format_is_used_where_there_is_one(takes_system):
    tokenizer, model = fresh("mistral")
    refuse = "" if takes_system else "{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    tokenizer.chat_template = (
        "{{ bos_token }}{% for m in messages %}" + refuse + "[{{ m.role }}] {{ m.content }} [/]{% endfor %}"
    )
    chosen = promptreps(prepare(model, tokenizer, attention="causal", device="cpu"))
    before, behind = chosen.settings.template.split("{text}")
    if takes_system:
        assert before.startswith("[system] You are an AI") and '[/][user] Passage: "' in before
    else:
        assert before.startswith("[user] You are an AI") and before.endswith('human language. Passage: "')
    assert behind.endswith('lowercase. [/][assistant] The word is: "')
    (reading,) = Reader(tokenizer, chosen.settings).read(["cars"], instructed=False)
    assert reading.ids.count(1) == 1 and reading.last == len(reading.ids) - 1
    assert tokenizer.convert_ids_to_tokens(reading.ids[-1]).endswith('"')


def test_an_end_token_of_the_tokenizers_own_is_not_behind_the_prompt():
    from tokenizers import processors

    tokenizer, model = fresh("mistral")
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    settings = promptreps(prepare(model, tokenizer, attention="causal", device="cpu")).settings
    (reading,) = Reader(tokenizer, settings).read(["cars"], instructed=False)
    assert reading.ids[0] == 1 and 2 not in reading.ids


def test_promptreps_needs_a_model_that_predicts_the_next_word(bert):
    with pytest.raises(InputError, match="this backbone predicts none"):
        promptreps(bert)
    with pytest.raises(InputError, match="open it with attention='causal'"):
        promptreps_dense(backbone_of("gpt_neox", "bidirectional"))


def test_clusters_without_tokens_have_no_own_words(causal):
    from pellucid.lexicon.clusters import Clusters

    centroids = causal.head[:5].numpy()
    model = OwnWordsEmbedder(causal, Clusters(np.zeros(0, int), centroids, list("abcde"), [()] * 5))
    with pytest.raises(InputError, match="own words need clusters that know their tokens"):
        model.encode(["cars"])


def test_a_model_of_own_words_is_not_saved_as_another_one(causal, tmp_path):
    with pytest.raises(InputError, match="is not saved"):
        promptreps(causal).save_pretrained(tmp_path / "m")
    assert not list(tmp_path.iterdir())


# Dense


def test_dense_vectors_of_a_decoder(causal):
    states = plain("gpt_neox", [*plain_ids(causal.tokenizer, TEXT), 0])[1]
    assert DenseEmbedder(causal).encode(TEXT) == pytest.approx(unit(states[-1]), abs=1e-5)
    assert DenseEmbedder(causal, pooling="mean").encode(TEXT) == pytest.approx(unit(states[:-1].mean(axis=0)), abs=1e-5)


def test_dense_vectors_of_an_encoder_are_its_own_and_not_its_heads(bert):
    states = plain("bert", [1, *plain_ids(bert.tokenizer, TEXT), 2])[1]
    assert DenseEmbedder(bert).encode(TEXT) == pytest.approx(unit(states[-1]), abs=1e-5)
    found = DenseEmbedder(bert, pooling="mean").encode(TEXT)
    assert found == pytest.approx(unit(states[1:-1].mean(axis=0)), abs=1e-5)


def test_echo_embeddings_as_springer_has_them_are_dense(causal):
    model = DenseEmbedder(causal, ECHO_SETTINGS, pooling="mean")
    states = plain("gpt_neox", [0, *plain_ids(causal.tokenizer, f"Document: {TEXT}\nDocument again: {TEXT}"), 0])[1]
    n = second_time(causal.tokenizer, TEXT)
    without_start = plain("gpt_neox", [*plain_ids(causal.tokenizer, f"Document: {TEXT}\nDocument again: {TEXT}"), 0])[1]
    assert model.encode_document(TEXT) == pytest.approx(unit(without_start[-n - 1 : -1].mean(axis=0)), abs=1e-5)
    assert not np.allclose(states[-n - 1 : -1], without_start[-n - 1 : -1], atol=1e-4)


def test_a_dense_similarity_is_one_row(causal):
    model = DenseEmbedder(causal)
    explanation = model.explain(TEXTS[0], TEXTS[1])
    assert [row.contribution for row in explanation.rows] == [explanation.score] and "whole vector" in str(explanation)
    assert model.explain("", TEXT).rows == () and model.explain(TEXT).score == pytest.approx(1, abs=1e-6)
    assert model.describe(TEXT) == "mostly about: a dense vector, whose dimensions have no names"
    with pytest.raises(InputError, match="pooling is 'max'"):
        DenseEmbedder(causal, pooling="max")


def test_a_dense_model_warns_of_what_it_leaves_out(causal):
    short = DenseEmbedder(causal, LexiconSettings(max_length=6))
    with pytest.warns(UserWarning, match="1 of 2 texts are longer than the 6 tokens"):
        short.encode(["car", TEXT])


# All of them


def dense_array(rows):
    return rows.toarray() if hasattr(rows, "toarray") else rows


@pytest.mark.parametrize("make", [splade, echo, promptreps, promptreps_dense, DenseEmbedder])
def test_texts_beside_it_do_not_change_a_text(make):
    backbone = backbone_of("mistral")
    backbone.tokenizer.padding_side = "left"
    backbone.tokenizer.pad_token = "</s>"
    model = make(backbone)
    for encode in (model.encode, model.encode_query, model.encode_document):
        together, alone = dense_array(encode(TEXTS)), np.vstack([dense_array(encode([text])) for text in TEXTS])
        assert together == pytest.approx(alone, abs=1e-5)
        assert np.linalg.norm(together, axis=1) == pytest.approx([1, 1, 0, 1], abs=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {"colour": 1}}, "does not describe a dense model"),
        ({"fingerprint": [0.0] * 32}, "saved"),
        ({"fingerprint": [10**400] * 32}, "saved"),
    ],
)
def test_a_broken_dense_folder_says_so(causal, tmp_path, changes, message):
    model = DenseEmbedder(causal, ECHO_SETTINGS, pooling="mean")
    model.save_pretrained(tmp_path / "saved")
    again = DenseEmbedder.from_pretrained(tmp_path / "saved")
    assert (again.pooling, again.settings) == ("mean", model.settings)
    path = tmp_path / "saved/dense.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(ModelFolderError, match=message):
        DenseEmbedder.from_pretrained(tmp_path / "saved")
