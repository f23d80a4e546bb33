"""Swap tests find a planted bias of its size, claim none where there is none, and removal is judged on other words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pellucid
from pellucid.analysis import effects
from pellucid.analysis.effects import BiasMeasurement
from pellucid.analysis.swaps import PAIR_LISTS, TARGET_LISTS, Target, read_pairs, read_scored_pairs, read_targets
from pellucid.errors import CorpusError, InputError
from pellucid.static.embedder import StaticEmbedder
from pellucid.text.corpus import CorpusFile
from pellucid.text.words import Vocabulary

N_PAIRS, N_TARGETS, WIDTH, STRENGTH = 16, 8, 48, 0.6
PAIRS = [(f"he{n}", f"she{n}") for n in range(N_PAIRS)]
PROXIES = [(f"bob{n}", f"ann{n}") for n in range(N_PAIRS)]
TARGETS = [f"job{letter}" for letter in "abcdefgh"]


def planted(seed: int, leans: list[float], *, proxy_strength: float = 0.0) -> StaticEmbedder:
    """A model in which cos(target, he) - cos(target, she) is 2 * STRENGTH * lean on average, by one direction.

    Proxies also differ along a second direction, in which the targets lean as much.
    """
    random = np.random.default_rng(seed)

    def noise(n: int) -> np.ndarray:
        rows = random.normal(size=(n, WIDTH))
        rows[:, :2] = 0
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def along(direction: int, strengths: np.ndarray) -> np.ndarray:
        rows = np.zeros((len(strengths), WIDTH))
        rows[:, direction] = strengths
        return rows + np.sqrt(1 - strengths**2)[:, None] * noise(len(strengths))

    sides = np.repeat([STRENGTH, -STRENGTH], N_PAIRS)
    proxies = along(1, np.repeat([proxy_strength, -proxy_strength], N_PAIRS))
    targets = along(0, np.array(leans))
    targets[:, 1] = leans
    words = [a for a, _ in PAIRS] + [b for _, b in PAIRS] + [a for a, _ in PROXIES] + [b for _, b in PROXIES] + TARGETS
    table = np.vstack([along(0, sides), proxies, targets])
    return StaticEmbedder(Vocabulary(words), table.astype(np.float32))


LEANS = [0.3, 0.2, 0.1, 0.0, 0.0, -0.1, -0.2, -0.3]


def effects_of(seed: int, leans: list[float]):
    measurement = BiasMeasurement(planted(seed, leans), read_pairs(PAIRS), list(map(Target, TARGETS)), 1)
    return {lean.target: lean for lean in measurement.test_templates(measurement.pairs).leans}


@pytest.mark.full
def test_a_planted_bias_is_covered_by_its_interval_and_none_is_claimed_without_one():
    n_covered = n_false = n_hits = 0
    for seed in range(60):
        leans = effects_of(seed, LEANS)
        for name, lean in zip(TARGETS, LEANS):
            true = 2 * STRENGTH * lean / np.hypot(1, lean)  # the second direction lengthens a target
            n_covered += leans[name].effect.low <= true <= leans[name].effect.high
        n_hits += leans["joba"].is_clear + leans["jobh"].is_clear
        n_false += any(lean.is_clear for lean in effects_of(1000 + seed, [0.0] * N_TARGETS).values())
    assert n_covered / (60 * N_TARGETS) == pytest.approx(0.95, abs=0.035)
    assert n_hits >= 114  # of 120 targets with a lean of 0.36
    assert n_false <= 7  # of 60 models without bias, 5 % are expected: P(> 7) = 0.6 %


def test_the_report_says_what_is_there_and_what_a_removal_leaves():
    model = planted(1, LEANS, proxy_strength=0.6)
    report = pellucid.bias(model, PAIRS, targets=TARGETS, proxies=PROXIES)
    pairs, proxies = report.tests
    assert pairs.before.n_clear >= 4 and pairs.after.n_clear == 0
    assert pairs.after.spread.value < 0.2 * pairs.before.spread.value
    assert proxies.after.n_clear >= 4  # along the other direction
    by_pairs, by_proxies = report.probes
    assert by_pairs.before.value > 0.9 and by_pairs.after.value < 0.7
    assert by_proxies.after.low > 0.5
    assert "joba" in str(report) and "can still be read from pairs in templates" in " ".join(report.findings())
    assert report.to_dict()["kind"] == "bias" and "<h2>" in report.to_html() and report.to_markdown()
    table = report.to_frame()
    assert len(table) == 2 * N_TARGETS and (table["low"] < table["effect"]).all()


def test_findings_claim_no_more_than_the_tables_show():
    model = planted(1, LEANS, proxy_strength=0.6)
    report = pellucid.bias(model, PAIRS, targets=TARGETS, proxies=PROXIES)
    said = " ".join(report.findings())
    for test in report.tests:
        assert f"of 8 targets {'are' if test.after.n_clear > 1 else 'is'} clearly nearer to one group" in said
        assert f"(before the removal: {test.before.n_clear}); the size of the leans" in said
    for cost in report.costs:
        assert f"{cost.measure} from {cost.before:.3f} to {cost.after:.3f}" in said

    again = pellucid.bias(report.without_direction(model), PAIRS, targets=TARGETS, proxies=PROXIES)
    said, probe = " ".join(again.findings()), again.probes[0]
    assert " still clearly" not in said and ", 0% less" not in said and "0 of" not in said
    assert probe.after.high < 0.5 and "below chance" in said  # fitted on the pairs that are tested


def test_the_end_of_a_one_sided_rest_is_not_given_to_the_other_group():
    report = pellucid.bias(planted(1, LEANS, proxy_strength=0.6), PAIRS, targets=TARGETS, proxies=PROXIES)
    test = report.tests[1]
    first = [lean for lean in test.leans if lean.effect_after.value > 0]
    sided = replace(report, tests=(report.tests[0], test._replace(leans=tuple(first))))
    (line,) = (line for line in sided.findings() if "the largest" in line)
    assert f" to {report.groups[0]}" in line and f" to {report.groups[1]}" not in line


def test_a_model_without_the_direction_is_saved_and_its_rows_add_up(tmp_path: Path):
    model = planted(2, LEANS)
    report = pellucid.bias(model, PAIRS, targets=TARGETS)
    without = report.without_direction(model)
    gap = without.encode([f"{a} is here." for a, _ in PAIRS]) - without.encode([f"{b} is here." for _, b in PAIRS])
    assert np.abs(gap.mean(axis=0)).max() < 0.2 * STRENGTH
    without.save_pretrained(tmp_path / "model")
    again = pellucid.load(tmp_path / "model")
    np.testing.assert_array_equal(again.encode(TARGETS), without.encode(TARGETS))
    why = again.explain("he1 jobb jobc", "she2 jobd")
    assert sum(row.contribution for row in why.rows) + why.remainder == pytest.approx(why.score, abs=1e-6)
    assert why.score == pytest.approx(
        again.similarity(*map(again.encode, ("he1 jobb jobc", "she2 jobd"))).item(), abs=1e-6
    )


@given(st.lists(st.sampled_from(TARGETS + [w for p in PAIRS for w in p]), min_size=1, max_size=5).map(" ".join))
def test_no_vector_has_a_direction_that_was_removed(text):
    model = planted(3, LEANS)
    without = model.without_direction(*PAIRS[:5], n_directions=2)
    rows = model.encode([word for pair in PAIRS[:5] for word in pair]).astype(np.float64)
    differences = rows[::2] - rows[1::2]
    differences /= np.linalg.norm(differences, axis=1, keepdims=True)
    directions = np.linalg.svd(differences)[2][:2]
    assert np.abs(directions @ without.encode(text)).max() < 1e-5


def test_your_texts_are_swapped():
    model = planted(4, LEANS)
    texts = [f"{a} was here" for a, _ in PAIRS] + ["nothing to swap", "jobb"]
    report = pellucid.bias(model, PAIRS, texts=texts, targets=TARGETS)
    assert report.tests[1].n_pairs == N_PAIRS
    assert report.tests[1].leans[0].effect.value == pytest.approx(report.tests[0].leans[0].effect.value, abs=1e-6)
    assert "16 of 18 texts" in " ".join(report.notes)
    with pytest.raises(InputError, match="0 of 1 texts hold a word"):
        pellucid.bias(model, PAIRS, texts=["jobb"], targets=TARGETS)


def test_proxies_in_your_texts_are_named_and_read():
    model = planted(9, [0.0] * N_TARGETS)
    random = np.random.default_rng(0)
    texts = []
    for n in range(120):
        side = n % 2
        proxy = "jobb" if random.random() < (0.85, 0.15)[side] else "jobc"
        texts.append(f"{PAIRS[n % N_PAIRS][side]} {proxy} {TARGETS[random.integers(3, 8)]} no{n}")
    report = pellucid.bias(model, PAIRS, texts=texts, targets=TARGETS)
    assert {item.word for item in report.proxy_words} == {"jobb", "jobc"}
    assert report.proxy_words[0].first + report.proxy_words[0].second > 40
    probe = next(probe for probe in report.probes if probe.name.startswith("your texts"))
    assert probe.before.low > 0.6 and probe.after.low > 0.6  # another direction says it
    assert "jobb" in " ".join(report.findings()) and "jobb" in str(report)
    shuffled = [f"{PAIRS[n % N_PAIRS][random.integers(2)]} {text.split(' ', 1)[1]}" for n, text in enumerate(texts)]
    unrelated = pellucid.bias(model, PAIRS, texts=shuffled, targets=TARGETS)
    assert not unrelated.proxy_words and unrelated.probes[1].before.low < 0.55


def test_words_are_swapped_in_their_case_and_guesses_are_counted():
    pairs = read_pairs("gender")
    text = "He took HIS new hat. The hat is his, said the Policeman to him."
    swapped = pairs.swapped(text)
    assert swapped.first == text
    assert swapped.second == "She took HER new hat. The hat is hers, said the Policewoman to her."
    assert (swapped.n_words, swapped.n_guessed) == (5, 2)
    assert pairs.swapped("I met her yesterday in her own car.").first == "I met him yesterday in his own car."
    names = read_pairs("names")
    assert names.swapped("Will Amber and amber mix, JESSICA?").first == "Will Andrew and amber mix, MICHAEL?"
    assert read_pairs([("彼", "彼女")]).swapped("彼は来た。").second == "彼女は来た。"


@given(st.text(max_size=60))
def test_a_text_without_words_of_the_list_stays(text):
    pairs = read_pairs([("qqx", "qqy")])
    assert pairs.swapped(text).first == pairs.swapped(text).second or "qq" in text.lower()


@pytest.mark.parametrize("name", PAIR_LISTS)
def test_lists_of_pairs(name):
    pairs = read_pairs(name)
    assert len([row for row in pairs.rows if row.phrase]) >= 16
    text = " ".join(pairs.words)
    assert not pairs.spans(pairs.swapped(text).first) or all(
        side == 0 for *_, side in pairs.spans(pairs.swapped(text).first)
    )


@pytest.mark.parametrize("name", TARGET_LISTS)
def test_lists_of_targets(name):
    assert len({target.text for target in read_targets(name).rows}) == 40


def written_by_pandas(frame, kind: str, path: Path) -> None:
    {
        "csv": lambda: frame.to_csv(path),
        "excel.csv": lambda: frame.to_csv(path, sep=";", index=False, encoding="utf-8-sig"),
        "tsv": lambda: frame.to_csv(path, sep="\t", index=False, encoding="utf-16"),
        "mac.csv": lambda: path.write_bytes(frame.to_csv(index=False).replace("\n", "\r").encode("utf-8")),
        "jsonl": lambda: frame.to_json(path, orient="records", lines=True),
        "json": lambda: frame.to_json(path, orient="records"),
        "parquet": lambda: frame.to_parquet(path),
        "xlsx": lambda: frame.to_excel(path),
        "txt": lambda: frame.to_csv(path, sep="\t", index=False),
    }[kind]()


@pytest.mark.parametrize("kind", ["csv", "excel.csv", "tsv", "mac.csv", "jsonl", "json", "parquet", "xlsx", "txt"])
def test_pairs_of_any_file(kind, tmp_path: Path):
    pandas = pytest.importorskip("pandas")
    if kind in ("parquet", "xlsx"):
        pytest.importorskip({"parquet": "pyarrow", "xlsx": "openpyxl"}[kind])
    path = tmp_path / f"pairs.{kind}"
    written_by_pandas(pandas.DataFrame({"Männer": ["er", "Herr Ö"], "Frauen": ["sie", "Frau Ö"]}), kind, path)
    pairs = read_pairs(path)
    assert pairs.groups == ("Männer", "Frauen")
    assert [row[:2] for row in pairs.rows] == [("er", "sie"), ("Herr Ö", "Frau Ö")]


def test_scored_pairs_of_a_file(tmp_path: Path):
    path = tmp_path / "sts.tsv"
    path.write_text("score\tsentence1\tsentence2\n1\ta\tb\n2.5\tc\td\n\te\tf\n3\tg\th\n")
    assert read_scored_pairs(path) == [("a", "b", 1.0), ("c", "d", 2.5), ("g", "h", 3.0)]
    with pytest.raises(CorpusError, match="give two texts and a number"):
        read_scored_pairs([("a", "b", "much")])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("he\nshe\n", "one column"),
        ("a,b\nhe,\n", "line 2: a pair is a word of each group"),
        ("a,b\nhe,He\n", "a pair is a word of each group"),
        ("a,b\n", "holds no pairs"),
        ("a,b\nhe,she\nshe,him\n", "'she' stands for both groups"),
        ("a,b,phrase\nhe,she,the\n", "has no {} for the word"),
        ("", "empty"),
    ],
)
def test_files_that_hold_no_pairs(content, message, tmp_path: Path):
    path = tmp_path / "pairs.csv"
    path.write_text(content)
    with pytest.raises((CorpusError, InputError), match=message):
        read_pairs(path)
    assert issubclass(CorpusError, Exception)


def test_refusals(tmp_path: Path):
    model = planted(5, LEANS)
    with pytest.raises(InputError, match="did you mean 'gender'"):
        pellucid.bias(model, "gendre")
    with pytest.raises(InputError, match="the model knows 0 of 40 targets"):
        pellucid.bias(model, PAIRS)
    with pytest.raises(InputError, match="n_directions is 0"):
        pellucid.bias(model, PAIRS, targets=TARGETS, n_directions=0)
    with pytest.raises(InputError, match="given by pairs of texts"):
        model.without_direction("he1")
    with pytest.raises(InputError, match="one vector"):
        model.without_direction(("he1", "he1"))
    two = pellucid.bias(model, PAIRS[:2], targets=TARGETS)
    assert two.tests[0].after is None and not two.probes
    assert "not tested" in " ".join(two.findings())
    assert CorpusFile(tmp_path / "x.csv").field == "text"


def measured_with(pair: float, template: float, shape: tuple[int, int], seed: int) -> effects._Measured:
    """Effects on eight targets that are 0 on average, and differ between pairs and between templates."""
    random, (n_pairs, n_templates) = np.random.default_rng(seed), shape
    noise = (
        pair * random.normal(size=(8, n_pairs, 1))
        + template * random.normal(size=(8, 1, n_templates))
        + 0.1 * random.normal(size=(8, *shape))
    )
    return effects._Measured(0.05 * noise, 0.0, np.zeros(8))


@pytest.mark.parametrize(
    ("pair", "template", "shape"), [(1, 0, (16, 8)), (0, 1, (16, 8)), (0, 1, (100, 8)), (0, 1, (16, 2)), (1, 0, (3, 8))]
)
def test_what_is_chance_in_pairs_or_in_templates_is_not_claimed(monkeypatch: pytest.MonkeyPatch, pair, template, shape):
    monkeypatch.setattr(effects, "_N_DRAWS", 300)
    n_false = sum(any(effects._leans(measured_with(pair, template, shape, seed))[1]) for seed in range(60))
    assert n_false <= 8  # 5 % of 60 are expected: P(> 8) = 0.2 %


def test_repetitions_are_no_evidence():
    model = planted(9, [0.0] * N_TARGETS)
    once, repeated = (pellucid.bias(model, pairs, targets=TARGETS) for pairs in (PAIRS[:4], PAIRS[:4] * 20))
    assert repeated.tests == once.tests and "60 pairs are left out" not in " ".join(once.notes)
    unread = [(f"{a} zz{n}", f"{b} zz{n}") for n in range(5) for a, b in PAIRS[:4]]  # the model knows no zz0
    assert pellucid.bias(model, unread, targets=TARGETS).tests == once.tests
    with pytest.raises(InputError, match="as one"):
        pellucid.bias(model, PAIRS[:1] * 9, targets=TARGETS)
    texts = [f"{a} jobb" for a, _ in PAIRS[:5]]
    few, many = (pellucid.bias(model, PAIRS, texts=chosen, targets=TARGETS) for chosen in (texts, texts * 30))
    assert many.tests[1] == few.tests[1] and many.probes == few.probes
    with pytest.raises(InputError, match="1 of 50 texts hold a word"):
        pellucid.bias(model, PAIRS, texts=["he1 joba", "she1 joba"] * 25, targets=TARGETS)
    assert len(pellucid.report(model, texts[:1] * 9, pairs=PAIRS, targets=TARGETS).biases[0].tests) == 1


def test_default_proxies_that_the_model_does_not_know_are_a_note():
    model = planted(1, LEANS)
    pairs = replace(read_pairs(PAIRS), name="gender")
    report = pellucid.bias(model, pairs, targets=TARGETS)
    assert len(report.tests) == 1 and "Proxies (names) were not tested" in " ".join(report.notes)
    with pytest.raises(InputError, match="the model knows 0 of"):
        pellucid.bias(model, pairs, targets=TARGETS, proxies="names")
    with pytest.raises(CorpusError, match="two texts and a number"):
        pellucid.bias(model, pairs, targets=TARGETS, sts=[(1, 2, 3)] * 3)


@pytest.mark.parametrize(
    ("pair", "text", "swapped"),
    [
        (("पुरुष", "महिला"), "पुरुष और पुरुषों", "महिला और पुरुषों"),  # the plural goes on with a vowel sign
        (("رجل", "امرأة"), "رجل هنا", "امرأة هنا"),
        (("رجل", "امرأة"), "رجلٌ هنا", "رجلٌ هنا"),
        (("мужчина", "женщина"), "Мужчина здесь", "Женщина здесь"),
        (("先生", "女士"), "王先生来了", "王女士来了"),
        (("cafe", "bar"), "cafe\u0301 cafe", "café bar"),
    ],
)
def test_words_of_any_script_are_swapped_whole(pair, text, swapped):
    assert read_pairs([pair]).swapped(text).second == swapped


def test_costs_are_of_texts_that_the_model_knows():
    model = planted(1, LEANS)  # which knows no neutral sentence
    assert pellucid.bias(model, PAIRS, targets=TARGETS).costs == ()
    one_score, no_words = ([(a, b, 1) for a, b in PAIRS], [("zz", "yy", n) for n in range(5)])
    assert all(pellucid.bias(model, PAIRS, targets=TARGETS, sts=sts).costs == () for sts in (one_score, no_words))


def test_effects_stay_in_the_range_of_cosines():
    leans = pellucid.bias(planted(1, LEANS), PAIRS[:2], targets=TARGETS).tests[0].leans
    assert all(-2 <= lean.effect.low <= lean.effect.high <= 2 for lean in leans) and not any(x.is_clear for x in leans)


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "NaN", "much"])
def test_numbers_that_are_none_are_refused(number, tmp_path: Path):
    path = tmp_path / "targets.csv"
    path.write_text(f"text,share\njoba,{number}\njobb,1\n")
    with pytest.raises(CorpusError, match="line 2"):
        read_targets(path)
    with pytest.raises(CorpusError, match="two texts and a number"):
        read_scored_pairs([("a", "b", number)] * 3)


@pytest.mark.filterwarnings("error")
def test_numbers_of_any_size_correlate(tmp_path: Path):
    model, path = planted(1, LEANS), tmp_path / "targets.csv"
    results = []
    for scale in (1.0, 1e308, 1e-308):
        path.write_text("text,x\n" + "".join(f"{name},{lean * scale}\n" for name, lean in zip(TARGETS, LEANS)))
        results.append(pellucid.bias(model, PAIRS, targets=path).tests[0].before.correlation)
    np.testing.assert_allclose(results, results[:1] * 3, rtol=1e-6)


@pytest.mark.parametrize(("sign", "nearer"), [(1, "first"), (-1, "second")])
def test_a_correlation_is_said_with_its_side_and_where_it_remains(sign, nearer, tmp_path: Path):
    path = tmp_path / "targets.csv"
    path.write_text("text,x\n" + "".join(f"{name},{sign * lean}\n" for name, lean in zip(TARGETS, LEANS)))
    report = pellucid.bias(planted(1, LEANS, proxy_strength=0.6), PAIRS, targets=path, proxies=PROXIES)
    assert f"the larger the number, the nearer a target is to {nearer}." in report.findings()[0]
    lines = [line for line in report.findings() if "; the size of the leans goes from" in line]
    for test, line in zip(report.tests, lines, strict=True):
        remains = test.after.correlation.low * test.after.correlation.high > 0
        assert ("still correlate with" in line) == remains
    assert remains  # the proxies lean along a second direction


@pytest.mark.parametrize("pair", [("", "she1"), ("he1", " "), ("\u3000", "she1")])
def test_blank_words_are_refused(pair):
    with pytest.raises(InputError, match="blank word"):
        read_pairs([pair, *PAIRS[2:5]])


@pytest.mark.parametrize("n_directions", [True, 1.5, "2", float("nan"), 0])
def test_a_number_of_directions_is_an_integer(n_directions):
    with pytest.raises(InputError, match="n_directions"):
        planted(3, LEANS).without_direction(*PAIRS[:3], n_directions=n_directions)


@pytest.mark.parametrize("pair", [5, None, iter(("he1", "she1")), {"he1", "she1"}, ("he1",), [PAIRS[0], PAIRS[1]]])
def test_what_is_no_pair_is_refused(pair):
    with pytest.raises(InputError):
        planted(3, LEANS).without_direction(pair)


def test_the_directions_that_are_removed_are_counted():
    report = pellucid.bias(planted(1, LEANS), PAIRS, targets=TARGETS, n_directions=10**6)
    assert report.n_directions <= N_PAIRS and "000" not in next(text for text in report.findings() if "remov" in text)


def test_a_report_has_findings_first_and_stands_alone(tmp_path: Path):
    model = planted(6, LEANS)
    texts = [f"{a} was here" for a, _ in PAIRS]
    report = pellucid.report(model, texts, pairs=PAIRS, targets=TARGETS, title="Two <groups>", corpus="letters")
    page, text = report.to_html(), report.to_markdown()
    assert "<script" not in page and "http" not in page.replace("http-equiv", "")
    assert "Two &lt;groups&gt;" in page and page.count('class="interval"') > N_TARGETS
    order = [text.index(part) for part in ("Two", "letters: 16 texts", "## Findings", "## Limits", "## Appendix")]
    assert order == sorted(order)
    assert "legal advice" in text and "fingerprint" in text.lower()
    assert report.to_dict()["biases"][0]["kind"] == "bias"
    with pytest.raises(InputError, match="no pairs are named"):
        pellucid.report(model, pairs=[], targets=TARGETS)


def test_texts_without_words_of_the_pairs_are_no_error_in_a_report():
    report = pellucid.report(planted(7, LEANS), ["nothing here"] * 3, pairs=PAIRS, targets=TARGETS)
    assert [test.name for test in report.biases[0].tests] == ["pairs in templates"]


@pytest.mark.full
def test_the_commands_write_reports_of_models_and_indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("Stemmer")
    from typer.testing import CliRunner

    from pellucid.cli.app import app

    monkeypatch.chdir(tmp_path)
    planted(8, LEANS).save_pretrained("model")
    Path("pairs.csv").write_text("men;women\n" + "".join(f"{a};{b}\n" for a, b in PAIRS))
    Path("jobs.txt").write_text("\n".join(TARGETS))
    Path("letters.csv").write_text("id,body\n" + "".join(f"{n},{a} was here\n" for n, (a, _) in enumerate(PAIRS)))
    common = ["--pairs", "pairs.csv", "--targets", "jobs.txt"]
    run = CliRunner().invoke
    result = run(app, ["bias", "-m", "model", *common, "--texts", "letters.csv", "--field", "body", "-o", "without"])
    assert result.exit_code == 0 and "men - women" in result.output, result.output
    after = run(app, ["bias", "-m", "without", *common, "--json"])
    assert after.exit_code == 0 and '"n_clear": 0' in after.output
    with pellucid.Index.create("index", pellucid.load("model")) as index:
        index.add([f"{a} was here" for a, _ in PAIRS])
    result = run(app, ["report", "index", *common, "--html", "r.html", "--markdown", "r.md"])
    assert result.exit_code == 0, result.output
    assert "the index index: 16 texts" in Path("r.md").read_text() and Path("r.html").exists()
    refused = run(app, ["report", "model", *common, "--markdown", "r.md"])
    assert refused.exit_code == 1 and "--overwrite" in refused.output
