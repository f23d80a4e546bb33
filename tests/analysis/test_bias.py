"""Swap tests find a planted bias of its size, claim none where there is none, and name what matters."""

from pathlib import Path

import numpy as np
import pytest

import pellucid
from commands import run_command
from files import written
from pellucid.analysis import bias_audit
from pellucid.analysis.bias_audit import PAIR_LISTS, TARGET_LISTS, Target, read_pairs, read_targets
from pellucid.errors import CorpusError, InputError
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.words import Vocabulary
from refusals import refused

N_PAIRS, N_TARGETS, WIDTH, STRENGTH = 16, 8, 48, 0.6
PAIRS = [(f"he{n}", f"she{n}") for n in range(N_PAIRS)]
TARGETS = [f"job{letter}" for letter in "abcdefgh"]


def planted(seed, leans):
    """A model in which cos(target, he) - cos(target, she) is 2 * STRENGTH * lean on average, by one direction."""
    random = np.random.default_rng(seed)

    def along(strengths):
        rows = random.normal(size=(len(strengths), WIDTH))
        rows[:, 0] = 0
        rows *= np.sqrt(1 - strengths**2)[:, None] / np.linalg.norm(rows, axis=1, keepdims=True)
        rows[:, 0] = strengths
        return rows

    words = [a for a, _ in PAIRS] + [b for _, b in PAIRS] + TARGETS
    table = np.vstack([along(np.repeat([STRENGTH, -STRENGTH], N_PAIRS)), along(np.array(leans))])
    return StaticEmbedder(Vocabulary(words), table.astype(np.float32))


LEANS = [0.3, 0.2, 0.1, 0.0, 0.0, -0.1, -0.2, -0.3]


def leans_of(seed, leans):
    return {lean.target: lean for lean in pellucid.bias(planted(seed, leans), PAIRS, targets=TARGETS).leans}


@pytest.mark.full
def test_a_planted_bias_is_covered_by_its_interval_and_none_is_claimed_without_one():
    n_covered = n_false = n_hits = 0
    for seed in range(60):
        leans = leans_of(seed, LEANS)
        for name, lean in zip(TARGETS, LEANS):
            n_covered += leans[name].low <= 2 * STRENGTH * lean <= leans[name].high
        n_hits += leans["joba"].is_clear + leans["jobh"].is_clear
        n_false += any(lean.is_clear for lean in leans_of(1000 + seed, [0.0] * N_TARGETS).values())
    assert n_covered / (60 * N_TARGETS) == pytest.approx(0.95, abs=0.035)
    assert n_hits >= 114  # of 120 targets with a lean of 0.36
    assert n_false <= 7  # of 60 models without bias, 5 % are expected: P(> 7) = 0.6 %


def test_findings_claim_no_more_than_the_tables_show():
    report = pellucid.bias(planted(1, LEANS), PAIRS, targets=TARGETS)
    said = " ".join(report.findings())
    assert len(report.clear) >= 4 and f"{len(report.clear)} of 8 targets lean clearly to one group" in said
    assert "most: joba, jobb" in said and (
        f"{report.leans[-1].target} is nearer to second" in said or "joba is" in said
    )
    assert report.to_dict()["kind"] == "bias" and "<h2>" in report.to_html()
    table = report.to_frame()
    assert len(table) == N_TARGETS and (table["low"] < table["effect"]).all()
    none = pellucid.bias(planted(1, [0.0] * N_TARGETS), PAIRS, targets=TARGETS)
    assert "None of 8 targets leans clearly" in " ".join(none.findings())
    assert "does not show that there is no bias" in str(none).replace("\n", " ")


@pytest.mark.parametrize(("size", "is_clear"), [(0.3, True), (0.009, False), (0.015, False)])
def test_a_certain_lean_that_is_too_small_to_matter_is_not_clear(size, is_clear):
    """Twenty pairs whose leans hardly vary: a t-test is sure of any of them."""
    random = np.random.default_rng(0)
    base = np.linspace(-0.15, 0.15, N_TARGETS)  # the usual difference is 0.1, a fifth of it 0.02
    similarities = np.zeros((N_TARGETS, 20, 8, 2)) + base[:, None, None, None]
    similarities[..., 0] += size + 1e-4 * random.normal(size=(N_TARGETS, 20, 8))
    leans, usual_difference = bias_audit._leans(similarities, [Target(name) for name in TARGETS])
    assert [lean.is_clear for lean in leans] == [is_clear] * N_TARGETS
    assert leans[0].strength == pytest.approx(size / usual_difference, rel=0.01)


def test_words_that_the_model_guesses_are_left_out_and_named():
    model = pellucid.load("static-en")
    pairs = [("Emily", "Latisha"), ("Anne", "Lakisha"), ("Laura", "Jessica"), ("Peter", "Susan"), ("Frank", "Jane")]
    targets = ["nurse", "lawyer", "zyxwvutic engineer", "a kind neighbour"]
    result = pellucid.bias(model, pairs, targets=targets)
    said = " ".join(result.notes)
    assert all(word in said for word in ("latisha", "lakisha", "zyxwvutic")) and "2 pairs left out" in said
    assert result.n_pairs == 3 and targets[2] not in [lean.target for lean in result.leans]
    most = pellucid.bias(model, pairs[2:], targets=[*targets[:2], "a zyxwvutic engineer of trains"])
    assert len(most.leans) == 3 and "zyxwvutic. 0 targets left out" in most.notes[0]


def test_numbers_of_a_list_are_compared_with_the_groups_that_they_are_about():
    women, nations = (pellucid.bias(pellucid.load("static-en"), pairs) for pairs in ("gender", "nationality"))
    assert women.correlation.high < 0 and women.expected == "percent of women"
    assert "go with percent of women: the larger it is, the nearer a target tends to be to female" in str(
        women.findings()
    )
    assert nations.correlation is None and "percent of women" not in str(nations)


def test_the_lists():
    assert all(len(read_pairs(name).rows) >= 16 for name in PAIR_LISTS)
    assert all(len({target.text for target in read_targets(name)[0]}) == 40 for name in TARGET_LISTS)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("pairs.csv", lambda frame, path: frame.to_csv(path)),
        ("excel.csv", lambda frame, path: frame.to_csv(path, sep=";", index=False, encoding="utf-8-sig")),
        ("pairs.tsv", lambda frame, path: frame.to_csv(path, sep="\t", index=False, encoding="utf-16")),
        ("mac.csv", lambda frame, path: written(path, frame.to_csv(index=False).replace("\n", "\r"))),
        ("pairs.jsonl", lambda frame, path: frame.to_json(path, orient="records", lines=True)),
        ("pairs.json", lambda frame, path: frame.to_json(path, orient="records")),
        pytest.param("p.parquet", lambda frame, path: frame.to_parquet(path), marks=pytest.mark.needs("pyarrow")),
        pytest.param("p.xlsx", lambda frame, path: frame.to_excel(path), marks=pytest.mark.needs("openpyxl")),
        ("pairs.txt", lambda frame, path: frame.to_csv(path, sep="\t", index=False)),
    ],
)
def test_pairs_of_any_file(name, write, tmp_path):
    pandas = pytest.importorskip("pandas")
    write(pandas.DataFrame({"Männer": ["er", "Herr Ö"], "Frauen": ["sie", "Frau Ö"]}), tmp_path / name)
    pairs = read_pairs(tmp_path / name)
    assert (pairs.groups, [row[:2] for row in pairs.rows]) == (
        ("Männer", "Frauen"),
        [("er", "sie"), ("Herr Ö", "Frau Ö")],
    )


NO_PAIRS = [
    ("he\nshe\n", "pairs need two that are headed"),
    ("a,b\nhe,\n", "'' is no word for a group"),
    ("a,b\nhe,He\n", "'he' stands for both groups"),
    ("a,b\n", "holds no pairs"),
    ("a,b\nhe,she\nshe,him\n", "'she' stands for both groups"),
    ("a,b,phrase\nhe,she,the\n", "has no {} for the word"),
    ("id,title\nd1,Fees of cards\nd2,Lost luggage\n", r"has the columns \['id', 'title'\]; pairs need two"),
    ("first,second\n4983,Fees\n", "'4983' is no word for a group"),
    ("old,new\nFees,How do I cancel my subscription today\n", "is no word for a group"),
    ("", "empty"),
]
UNKNOWN = [("Emily", "Latisha"), ("Laura", "Jessica")]


@pytest.fixture
def leaning():
    return planted(5, LEANS)


test_what_holds_no_pairs_or_targets_is_refused = refused(
    *((lambda tmp_path, content=content: read_pairs(written(tmp_path / "pairs.csv", content)), message,
       (CorpusError, InputError)) for content, message in NO_PAIRS),
    *((lambda tmp_path, number=number: read_targets(
        written(tmp_path / "targets.csv", f"text,share\njoba,{number}\njobb,1\n")), "line 2", CorpusError)
      for number in ("nan", "inf", "-inf", "NaN", "much")),
    *((lambda pair=pair: read_pairs([pair, *PAIRS[2:5]]), "no word for a group") for pair in [
        ("", "she1"), ("he1", " "), ("\u3000", "she1")]),
    (lambda leaning: pellucid.bias(leaning, "gendre"), "did you mean 'gender'"),
    (lambda leaning: pellucid.bias(leaning, PAIRS), "the model knows 0 of 40 targets"),
    (lambda leaning: pellucid.bias(leaning, PAIRS[:1] * 9, targets=TARGETS), "as one"),
    (lambda leaning: pellucid.report(leaning, pairs=[], targets=TARGETS), "no pairs are named"),
    (lambda: pellucid.bias(pellucid.load("static-en"), UNKNOWN, targets=["nurse", "lawyer"]),
     r"the model knows 1 of 2 pairs.*latisha"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("pair", "template", "shape"), [(1, 0, (16, 8)), (0, 1, (16, 8)), (0, 1, (100, 8)), (0, 1, (16, 2)), (1, 0, (3, 8))]
)
def test_what_is_chance_in_pairs_or_in_sentences_is_not_claimed(pair, template, shape):
    """Effects on eight targets that are 0 on average, and differ between pairs and between sentences."""
    n_false, (n_pairs, n_templates) = 0, shape
    for seed in range(60):
        random = np.random.default_rng(seed)
        noise = pair * random.normal(size=(8, n_pairs, 1)) + template * random.normal(size=(8, 1, n_templates))
        noise = noise + 0.1 * random.normal(size=(8, *shape))
        leans, _ = bias_audit._leans(np.stack([noise / 40, -noise / 40], axis=-1), [Target(name) for name in TARGETS])
        n_false += any(lean.is_clear for lean in leans)
    assert n_false <= 8  # 5 % of 60 are expected: P(> 8) = 0.2 %


def test_repetitions_are_no_evidence():
    model = planted(9, [0.0] * N_TARGETS)
    several = PAIRS[:4], PAIRS[:4] * 20, PAIRS[:2]
    once, repeated, two = (pellucid.bias(model, pairs, targets=TARGETS) for pairs in several)
    assert all(-2 <= lean.low <= lean.high <= 2 for lean in two.leans)  # as far as cosines reach
    assert repeated.leans == once.leans and "76 pairs are left out" in " ".join(repeated.notes)


def of_numbers(folder, factor):
    """The report on targets that come with their leans times a factor."""
    content = "text,x\n" + "".join(f"{name},{lean * factor}\n" for name, lean in zip(TARGETS, LEANS))
    return pellucid.bias(planted(1, LEANS), PAIRS, targets=written(folder / "targets.csv", content))


@pytest.mark.filterwarnings("error")
def test_numbers_of_any_size_correlate(tmp_path):
    results = [of_numbers(tmp_path, factor).correlation for factor in (1.0, 1e308, 1e-308)]
    np.testing.assert_allclose(results, results[:1] * 3, rtol=1e-6)


@pytest.mark.parametrize(("sign", "nearer"), [(1, "first"), (-1, "second")])
def test_a_correlation_is_said_with_its_side(sign, nearer, tmp_path):
    said = f"The leans go with x: the larger it is, the nearer a target tends to be to {nearer}"
    assert said in " ".join(of_numbers(tmp_path, sign).findings())


def test_a_report_has_findings_first_and_stands_alone(tmp_path):
    model = planted(6, LEANS)
    texts = [f"{a} was here" for a, _ in PAIRS]
    report = pellucid.report(model, texts, pairs=PAIRS, targets=TARGETS, title="Two <groups>")
    page, text = report.to_html(), str(report)
    assert "<script" not in page and "http" not in page.replace("http-equiv", "") and "Two &lt;groups&gt;" in page
    order = [text.index(part) for part in ("Two", "your texts: 16 texts", "Findings", "Limits", "Appendix")]
    assert order == sorted(order)
    assert "legal advice" in text and "fingerprint" in text.lower()
    assert report.to_dict()["biases"][0]["kind"] == "bias"


@pytest.mark.full
def test_the_commands_write_reports(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    planted(8, LEANS).save_pretrained("model")
    written(Path("pairs.csv"), "men;women\n" + "".join(f"{a};{b}\n" for a, b in PAIRS))
    written(Path("jobs.txt"), "\n".join(TARGETS))
    written(Path("letters.txt"), "".join(f"{a} was here\n" for a, _ in PAIRS))
    common = ["-m", "model", "--pairs", "pairs.csv", "--targets", "jobs.txt"]
    assert "men - women" in run_command("bias", *common).output
    run_command(*(command := ["report", *common, "--texts", "letters.txt", "--html", "r.html"]))
    assert "letters.txt: 16 texts" in Path("r.html").read_text()
    assert "--overwrite" in run_command(*command, code=1).output
