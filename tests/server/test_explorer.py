"""The explorer in a real browser: clicks, reasons, permalinks, accessibility, and texts that are not markup."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pellucid

pytest.importorskip("fastapi", reason="the explorer needs pellucid[serve]")
pytest.importorskip("Stemmer", reason="its index needs pellucid[search]")
playwright = pytest.importorskip("playwright.sync_api", reason="browser tests need the package playwright")
from serving import indexed, running  # noqa: E402

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(BROWSER is None, reason="browser tests need Chromium: apt-get install chromium"),
]

EVIL = "<img src=x onerror=\"window.hacked=1\"><b>bold</b> 'quoted' & loans"
DOCUMENTS = {
    "rates": "The bank raised the interest rate on home loans.",
    "dogs": "A dog runs across the park with a ball.",
    "banks": "The river bank was covered with flowers.",
    EVIL: f"{EVIL} at the bank",
    **{
        f"note {n}": f"Note number {n} about {word} in daily life."
        for n, word in enumerate("tea rain music work sleep".split() * 4)
    },
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, static: Any) -> Iterator[str]:
    documents = {"ids": DOCUMENTS, "metadata": [{"kind": EVIL}] * len(DOCUMENTS)}
    folder = indexed(tmp_path_factory.mktemp("explorer") / "index", DOCUMENTS.values(), **documents)
    with running({"static-en": static, EVIL: pellucid.load("anchors-en-200")}, index=folder) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
        browser = driver.chromium.launch(executable_path=BROWSER, args=[*options, "--disable-component-update"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(accept_downloads=True)
    context.set_default_timeout(60_000)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.problems = problems
    yield page
    assert problems == [] and page.evaluate("window.hacked") is None
    context.close()


def rows(page: Any) -> list[str]:
    """Open the rows below the lines of phrases; return their names."""
    page.wait_for_selector("tfoot")
    page.locator("details.rows").evaluate("fold => { fold.open = true; }")
    return page.locator("details.rows tbody td:last-child").all_inner_texts()


def unfold(page: Any) -> None:
    """Open the sliders of the search."""
    page.locator("details", has_text="Adjust weights").evaluate("fold => { fold.open = true; }")


def scores(page: Any) -> list[float]:
    """Return the scores of the hits, which the numbers beside the bars have as titles."""
    titles = page.locator(".hit .score-of-hit").evaluate_all("all => all.map(one => one.title)")
    return [float(title.split()[1]) for title in titles]


def test_two_texts_and_a_third(page: Any, url: str, static: Any) -> None:
    page.goto(url + "/#compare")
    page.get_by_label("Text A").fill("a loan for a house")
    page.get_by_label("Text B").fill("mortgage rates")
    expected = static.explain("a loan for a house", "mortgage rates")
    page.get_by_text(expected.summary().replace("text 1", "text A")).wait_for()  # the letters of the page
    assert page.locator(".score").inner_text() == f"{expected.score:.4f}"
    lines = [name.strip() for name in page.locator(".scroll tbody td:last-child").all_inner_texts()]
    assert lines == [group.name for group in expected.groups()]
    assert rows(page)[0] == expected.rows[0].name
    page.get_by_label("Text C").fill("a dog")
    page.get_by_text("Text B is closer to text A than text C is").wait_for()
    page.get_by_text("how much closer B is to A than C").wait_for()
    assert page.get_by_role("heading", name="Text C").is_visible()


LOANS = "compare?a=a+loan+for+a+house&b=a+house+loan"


@pytest.mark.parametrize(
    ("view", "steps", "said", "is_scored"),
    [
        (LOANS, {}, "higher than 99.9% of unrelated pairs", True),
        (LOANS, {"Text B": ""}, "Write two texts", False),
        (LOANS, {"Text B": "ሰላም"}, "No score: the model finds nothing", False),
        ("compare", {"Text A": "word " * 2000, "Text B": "word " * 2000}, "at most 10,000", False),
        ("read?text=interest+on+loans",
         {"Dimensions of the model": None, "Find a dimension": "no such words at all"}, "0 match", True),
        ("search?q=bank+interest+rate",
         {"Why is a document not here?": None, "Id of a document": "Rates", "Ask": None},
         "an id that is nearly written so: rates", False),
        ("compare", {"Text A": EVIL, "Text B": EVIL}, "<img src=x", True),  # markup stays text
        ("search?q=bold+loans+at+the+bank", {}, "<b>bold</b>", False),
    ],
)  # fmt: skip
def test_what_is_written_and_clicked_is_answered(
    page: Any, url: str, view: str, steps: dict[str, str | None], said: str, is_scored: bool
) -> None:
    """A step is what is written under a label, or None for a click on a text."""
    page.goto(f"{url}/#{view}")
    for label, text in steps.items():
        clicked = page.get_by_text(re.compile(f"^{re.escape(label)}"))
        clicked.click() if text is None else page.get_by_label(label).fill(text)
    page.get_by_text(said).locator("visible=true").first.wait_for()
    assert page.locator("main img, main b").count() == 0
    assert bool(page.locator(".score, tfoot").count()) == is_scored
    page.problems[:] = [problem for problem in page.problems if "422" not in problem]  # which the browser logs


def test_a_word_shows_its_partners_and_a_link_keeps_the_view(page: Any, url: str, static: Any) -> None:
    page.goto(url + "/#compare?a=a+loan+for+a+house&b=mortgage+rates")
    first = static.explain("a loan for a house", "mortgage rates").groups()[0]
    loan = page.locator(".phrase").first
    loan.focus()
    outlined = page.locator(".is-partner").all_inner_texts()
    assert loan.inner_text() in outlined and set(outlined) & set(first.name.split(" → ")[1].split(", "))
    curves = page.locator(".joints path")
    assert curves.count() >= 1 and all(curve.bounding_box()["height"] > 0 for curve in curves.all())
    rows(page)
    page.locator("details.rows").get_by_role("button", name="loan", exact=True).focus()
    assert "mortgage" in page.locator("details.rows .is-partner").all_inner_texts()
    page.get_by_label("Text B").fill("a big house")
    page.get_by_role("button", name="house").nth(1).wait_for()
    assert "b=a+big+house" in page.url
    page.reload()
    assert page.get_by_label("Text B").input_value() == "a big house"


def test_one_text_and_its_neighbours(page: Any, url: str) -> None:
    page.goto(url + "/#read?text=interest+on+loans")
    page.get_by_text("nearest documents of the index").click()
    assert DOCUMENTS["rates"] in page.locator("ol li").first.inner_text()


def test_search_is_weighed_anew_at_once(page: Any, url: str) -> None:
    page.goto(url + "/#search?q=river+loans")
    page.locator(".hit").first.wait_for()
    titles = page.locator(".hit h3").all_inner_texts()
    rank, title = (page.locator(f".hit h3 span:nth-child({number})").first.bounding_box() for number in (1, 2))
    assert rank["x"] + rank["width"] <= title["x"] and scores(page) == sorted(scores(page), reverse=True)
    assert "banks" in titles[0]
    assert page.get_by_role("slider").count() == 0  # they are folded
    unfold(page)
    page.get_by_role("slider", name="river", exact=True).fill("0")
    page.locator(".moved", has_text="down").first.wait_for()
    assert page.locator(".hit h3").first.inner_text() != titles[0] and "f=" in page.url
    page.get_by_role("slider", name="bm25", exact=True).fill("0")
    page.locator(".score-of-hit[title*='bm25 +0.']").first.wait_for(state="detached")
    page.reload()
    page.locator(".hit").first.wait_for()
    assert page.get_by_role("slider", name="river", exact=True).input_value() == "0"
    page.get_by_role("button", name="Reset the sliders").click()
    page.locator(".hit h3", has_text="banks").wait_for()


LONG = " ".join(f"The library lends reports about subject {n} to readers of the town." for n in range(40))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory, static: Any) -> Iterator[str]:
    """An index with titles, long texts, and metadata of every kind."""
    folder = tmp_path_factory.mktemp("library") / "index"
    words = "tea rain music work sleep loans".split()
    metadata = [{"shelf": "left" if n % 2 else "right", "year": 2000 + n, "lent": n % 3 == 0} for n in range(30)]
    titles = [f"Reports on {words[n % 6]}, volume {n}" for n in range(30)]
    texts = [f"All about {words[n % 6]}. {LONG}" for n in range(30)]
    texts[3] += " Its observatory is open."
    with pellucid.Index.create(folder) as index:
        index.add(texts, ids=[f"r{n}" for n in range(30)], titles=titles, metadata=metadata)
        index.calibrate(titles)
    with running({"static-en": static}, index=str(folder)) as address:
        yield address


def test_hits_show_their_title_once_and_open(page: Any, library: str) -> None:
    page.goto(library + "/#search?q=the+reports+on+tea+and+rain")
    first = page.locator(".hit").first
    first.wait_for()
    assert "Reports on" in first.locator("h3").inner_text()
    assert "Reports on" not in first.locator(":scope > .marked").inner_text()
    assert any("tea" in phrase or "rain" in phrase for phrase in first.locator("h3 .word").all_inner_texts())
    assert page.evaluate("document.activeElement.type") == "search"
    assert first.locator(".score-of-hit").inner_text() == f"{scores(page)[0]:.2f}"
    first.get_by_role("button", name="check").click()
    first.locator(".reasons", has_text="without").wait_for()
    body = first.locator(":scope > .marked")
    short = body.bounding_box()["height"]
    first.get_by_role("button", name="whole passage").click()
    assert body.bounding_box()["height"] > 2 * short and body.inner_text().rstrip().endswith("town.")
    first.get_by_role("button", name="Every reason").click()
    first.get_by_text("rows", exact=False).last.wait_for()
    first.locator("details.rows > summary").click()
    first.get_by_role("button", name="show them").click()
    page.get_by_text("more rows together").wait_for(state="detached")
    number = first.locator("details.rows tbody td.number")
    total = float(first.locator("tfoot td.number").first.inner_text().replace("−", "-"))
    assert abs(total - scores(page)[0]) < 2e-4
    adds = [float(cell.replace("−", "-")) for cell in number.all_inner_texts()]
    assert sum(adds) == pytest.approx(total, abs=1e-4 * len(adds))
    first.get_by_role("button", name="Why 1 above 2").click()
    first.get_by_text("What puts it above").wait_for()
    apart = float(first.locator("tfoot td.number").inner_text().replace("−", "-"))
    assert apart == pytest.approx(total - scores(page)[1], abs=3e-4)
    first.get_by_role("button", name="Nearest documents").click()
    first.locator("ol li").first.wait_for()
    unfold(page)
    named = "all => all.map(one => one.ariaLabel ?? one.labels[0].innerText)"
    sliders = page.locator("input[type=range]").evaluate_all(named)
    assert "tea" in sliders and not {"the", "on", "and"} & set(sliders)


def test_filters_narrow_the_search_and_stay_in_the_link(page: Any, library: str) -> None:
    page.goto(library + "/#search?q=reports+on+tea")
    page.locator(".hit").first.wait_for()
    assert not any(label.is_visible() for label in page.locator("label.model").all())  # an index has its own models
    page.get_by_label("right").check()
    page.get_by_label("year, to").fill("2010")
    page.get_by_role("heading", name="that meet the filters").wait_for()
    page.wait_for_function("document.querySelectorAll('.hit').length == 6")
    facts = page.locator(".hit > .parts").all_inner_texts()
    assert all("shelf: right" in fact and "year: 20" in fact for fact in facts)
    page.reload()
    page.locator(".hit").first.wait_for()
    assert page.get_by_label("right").is_checked() and page.locator(".hit").count() == 6
    page.get_by_label("year, to").fill("1990")
    page.get_by_text("No document meets the filters").wait_for()
    page.get_by_role("button", name="Clear the filters").click()
    page.locator(".hit").nth(9).wait_for()
    assert "m=" not in page.url
    page.get_by_role("slider", name="probability").fill("0.95")
    page.get_by_role("heading", name="that meet the filters").wait_for()


def test_hebrew_does_not_reorder_the_words_around_it(page: Any, tmp_path: Path, static: Any) -> None:
    texts = ["הבנק העלה את הריבית על הלוואות לדיור.", "ספר חדש על ההיסטוריה יצא לאור.", "כלב רץ בפארק עם כדור."]
    metadata = [{"day": f"2024-05-{n + 1:02d}", "שפה": "עברית"} for n in range(3)]
    with running({"static-en": static}, index=indexed(tmp_path / "index", texts, metadata=metadata)) as url:
        page.goto(url + "/#search?q=ריבית+על+הלוואות")
        page.locator(".hit").first.wait_for()
        for sentence in page.locator(".reasons, .lead").all():
            quoted = [part for part in sentence.inner_text().split('"')[1::2] if part]
            assert sentence.locator("bdi").all_inner_texts() == [f'"{part}"' for part in quoted] != []
        page.get_by_role("button", name="Every reason").first.click()
        page.locator("tfoot").first.wait_for()
        name = page.locator("tbody td:last-child", has_text="→").first.locator("bdi")
        assert name.first.bounding_box()["x"] < name.last.bounding_box()["x"]
        for field in page.locator("input[type=date]").all():
            assert field.evaluate("one => one.scrollWidth <= one.clientWidth") and field.bounding_box()["width"] > 160


def test_several_indexes_have_a_chooser(page: Any, tmp_path: Path, static: Any) -> None:
    names = ("first", "second")
    indexes = tuple(indexed(tmp_path / name, [f"a loan of the {name} index {n}" for n in range(12)]) for name in names)
    with running({"static-en": static}, index=indexes, judge=True) as url:
        page.goto(url)
        page.get_by_text("first: 12 documents").wait_for()
        page.locator("#index").select_option("second")
        page.get_by_label("Question").fill("loan")
        page.locator(".hit", has_text="of the second index").first.wait_for()
        page.get_by_role("button", name="relevant", exact=True).first.click()
        page.locator('[aria-pressed="true"]').wait_for()
        page.reload()
        page.locator(".hit", has_text="of the second index").first.wait_for()
        assert page.locator('[aria-pressed="true"]').all_inner_texts() == ["relevant"]
    with pellucid.Index.open(tmp_path / "second") as index:
        assert list(index.judgements()[0].values()) == ["loan"]


def test_a_token_that_is_not_given_ends_in_a_clear_state(page: Any, tmp_path: Path, static: Any) -> None:
    answers = ["wrong", None, "secret"]
    page.on("dialog", lambda dialog: dialog.dismiss() if (said := answers.pop(0)) is None else dialog.accept(said))
    with running({"static-en": static}, index=indexed(tmp_path / "index", ["a loan"]), token="secret") as url:
        page.goto(url)
        page.get_by_role("alert").get_by_text("answers only with its token").wait_for()
        page.get_by_role("button", name="Enter the token").click()
        page.get_by_text("index: 1 document").wait_for()
    page.problems[:] = [problem for problem in page.problems if "401" not in problem]  # which the browser logs


def test_words_and_fields_may_be_called_like_what_objects_inherit(page: Any, tmp_path: Path, static: Any) -> None:
    names = ["constructor", "toString", "__proto__", EVIL]
    fields: list[dict[str, Any]] = [{**dict.fromkeys(names, "yes"), "day": "2024-05-31"}, {}] * 10
    texts = [f"The constructor of a bank, toString and valueOf in note {n}" for n in range(20)]
    with running({"static-en": static}, index=indexed(tmp_path / "names", texts, metadata=fields)) as url:
        page.goto(url + "/#search?q=constructor+toString+valueOf")
        page.locator(".hit").first.wait_for()
        assert min(scores(page)) > 0.1
        for name in names:
            page.locator("fieldset", has=page.locator("legend", has_text=name)).locator("input").first.check()
            page.get_by_role("heading", name="Best 10 that meet the filters").wait_for()
            assert f"{name}: yes" in page.locator(".hit").first.inner_text()
            page.locator("fieldset", has=page.locator("legend", has_text=name)).locator("input").first.uncheck()
            page.get_by_role("heading", name="Best 10 of").wait_for()
        page.goto(url + "/#read?text=constructor+toString+loan")
        page.locator("tfoot").wait_for()
        page.goto(url + "/#constructor")
        page.get_by_role("heading", name="names").or_(page.get_by_label("Question")).first.wait_for()


def test_a_view_is_saved_as_json_and_as_a_picture(page: Any, url: str) -> None:
    page.goto(url + "/#compare?a=a+loan&b=mortgage+rates")
    page.wait_for_selector(".score")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save JSON").click()
    found = json.loads(Path(download.value.path()).read_text())
    assert found["text2"] == "mortgage rates" and found["rows"]
    with page.expect_download() as download:
        page.get_by_role("button", name="Save PNG").click()
    picture = Path(download.value.path()).read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 20_000  # an empty one is far smaller


def test_the_api_page_names_every_route_and_sends_a_request(page: Any, url: str, static: Any) -> None:
    page.goto(url + "/docs")
    page.locator(".route").first.wait_for()
    assert page.url == url + "/#api"
    paths = page.request.get(url + "/openapi.json").json()["paths"]
    asked = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    page.locator(".route").nth(len(asked) - 1).wait_for()
    assert set(page.locator(".route summary code").all_inner_texts()) == asked
    route = page.locator(".route", has=page.get_by_text("POST /explain", exact=True))
    route.locator("summary").click()
    route.locator("td code").get_by_text("text3", exact=True).wait_for()
    route.get_by_role("button", name="Send").click()
    route.locator("pre", has_text='"rows"').wait_for()
    sent = json.loads(route.get_by_label("Body").input_value())
    expected = static.explain(sent["text1"], sent["text2"])
    assert f'"score": {expected.score:.6f}' in route.locator("pre").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_accessible_in_both_schemes_and_on_a_phone(page: Any, url: str, scheme: str, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python", reason="needs the package axe-playwright-python")
    script = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    for view in ("compare?a=a+loan&b=mortgage&c=dog", "read", "search?q=river+bank", "api"):
        page.goto("about:blank")
        page.goto(f"{url}#{view}")
        page.wait_for_selector("tfoot, .hit, .route")
        page.evaluate(script)
        found = page.evaluate("axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'best-practice']})")
        problems = [
            (problem["id"], [node["html"][:200] for node in problem["nodes"][:3]]) for problem in found["violations"]
        ]
        assert problems == [], view
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth"), view


def test_the_keyboard_reaches_everything(page: Any, url: str) -> None:
    page.goto(url + "/#compare?a=a+loan&b=mortgage")
    page.wait_for_selector("tfoot")
    focused = "document.activeElement.id || document.activeElement.textContent || document.activeElement.tagName"
    seen = {page.keyboard.press("Tab") or page.evaluate(focused) for _ in range(30)}
    assert {"Skip to the content", "Search", "model", "loan", "mortgage", "json", "png"} <= seen
