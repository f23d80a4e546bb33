"""How well `pellucid.topics` finds the classes of two labelled sets, and what its names are worth, beside BERTopic.

    python -m benchmarks.topics --data shared/data --write

Clusters: normalised mutual information with the classes, on every second text; as many topics as classes. BERTopic (if
it is installed) gets the same embeddings, with its defaults (UMAP and HDBSCAN, reduced to as many topics; its outliers
are one cluster). With KMeans in the place of HDBSCAN, which it also takes, its clusters are those of `pellucid.topics`.
The floor is a random cluster for each text.

Names: the first three words of a topic as a classifier of the other half of the texts. A text counts as found when it
holds one of them, and counts as right when its nearest mean is the topic's; F1, averaged over the topics. Words are
ranked by log-odds times pull (what `topics` does), by each of the two alone, and by BERTopic's c-TF-IDF over the same
clusters.
The floor is the three commonest content words of the topic; the ceiling the three words with the best F1 on the texts
that are judged.
"""

from __future__ import annotations

from papers.kit import set_threads

set_threads(1)

import csv
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import normalized_mutual_info_score

import pellucid
from papers.kit import make_parser, markdown_table, measured
from pellucid.analysis.clustering import Topics, document_terms

PAGE = Path(__file__).with_suffix(".md")
SETS = ("search_snippets", "stackoverflow_titles")
MODELS = ("static-en", "lexicon-en", "anchors-en-500")
NAME_WORDS = 3
_CEILING_WORDS = 30  # of a topic, from which the best three are taken


def read_set(data: Path, name: str) -> tuple[list[str], list[str]]:
    """Return the texts and classes of a set."""
    with open(data / "clustering" / name / "test.tsv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [row["text"] for row in rows], [row["label"] for row in rows]


def name_f1(words: Sequence[str], terms: Sequence[set[str]], is_member: Any) -> float:
    """Return the F1 of "holds one of the words" as a classifier of the members of a topic."""
    holds = np.array([any(word in text_terms for word in words) for text_terms in terms])
    right = int((holds & is_member).sum())
    return 2 * right / max(int(holds.sum() + is_member.sum()), 1)


def best_words(candidates: Sequence[str], terms: Sequence[set[str]], is_member: Any) -> Sequence[str]:
    """Return the three words with the largest F1, of the candidates that do best alone."""
    alone = sorted(candidates, key=lambda word: -name_f1([word], terms, is_member))[:8]
    return max(combinations(alone, NAME_WORDS), key=lambda words: name_f1(words, terms, is_member))


def named(result: Topics, terms: Sequence[set[str]], members: Any, words_of: Callable[[int], Sequence[str]]) -> float:
    """Return the mean F1 of the names of all topics on held-out texts, x 100."""
    values = [name_f1(words_of(topic), terms, members == topic) for topic in range(len(result))]
    return 100 * float(np.mean(values))


def bertopic_words(texts: list[str], rows: Any, clusters: int) -> tuple[Any, Any]:
    """Return BERTopic's clusters, and its words by topic: with its defaults, or over given KMeans clusters."""
    from bertopic import BERTopic
    from sklearn.cluster import KMeans
    from umap import UMAP

    vectors = np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows)
    defaults = BERTopic(umap_model=UMAP(15, 5, min_dist=0.0, metric="cosine", random_state=0), nr_topics=clusters + 1)
    labels, _ = defaults.fit_transform(texts, vectors)
    from bertopic.dimensionality import BaseDimensionalityReduction
    from sklearn.feature_extraction.text import CountVectorizer

    over_kmeans = BERTopic(
        umap_model=BaseDimensionalityReduction(),
        hdbscan_model=KMeans(clusters, n_init=3, random_state=0),
        vectorizer_model=CountVectorizer(stop_words="english", ngram_range=(1, 2)),
    )
    kmeans_labels, _ = over_kmeans.fit_transform(texts, vectors)
    words = {topic: [word for word, _ in over_kmeans.get_topic(topic)] for topic in set(kmeans_labels)}
    return labels, (kmeans_labels, words)


def compare(data: Path, set_name: str, model_name: str) -> tuple[list[Any], list[Any]]:
    """Return a row of the table of clusters and one of the table of names."""
    texts, classes = read_set(data, set_name)
    fitted, judged, fitted_classes = texts[::2], texts[1::2], classes[::2]
    model = pellucid.load(model_name)
    n_classes = len(set(classes))
    result = pellucid.topics(model, fitted, n=n_classes)
    labels = np.array(result.labels)
    rows, judged_rows = model.encode(fitted), model.encode(judged)
    n = len(result)
    means = np.stack([np.asarray(rows[np.flatnonzero(labels == topic)].mean(axis=0)).ravel() for topic in range(n)])
    squares = (means**2).sum(axis=1)
    members = np.asarray(squares - 2 * (judged_rows @ means.T)).argmin(axis=1)
    terms = [document_terms(text) for text in judged]
    fitted_terms = [document_terms(text) for text in fitted]
    commonest = []
    for topic in range(n):
        counts = Counter(term for label, text in zip(labels, fitted_terms) if label == topic for term in text)
        commonest.append([word for word, _ in counts.most_common(_CEILING_WORDS)])
    random_labels = np.random.default_rng(0).integers(n_classes, size=len(fitted))
    by_words = {topic: item.words for topic, item in enumerate(result)}

    def ranked(key: Callable[[Any], float]) -> Callable[[int], Sequence[str]]:
        return lambda topic: [word.word for word in sorted(by_words[topic], key=key)[:NAME_WORDS]]

    names = [
        named(result, terms, members, lambda topic: commonest[topic][:NAME_WORDS]),
        named(result, terms, members, ranked(lambda word: -word.log_odds * word.pull)),
        named(result, terms, members, ranked(lambda word: -word.log_odds)),
        named(result, terms, members, ranked(lambda word: -word.pull)),
    ]
    nmi = [
        100 * normalized_mutual_info_score(fitted_classes, random_labels),
        100 * normalized_mutual_info_score(fitted_classes, labels),
    ]
    try:
        bertopic_labels, (kmeans_labels, words) = bertopic_words(fitted, rows, n_classes)
        nmi += [
            100 * normalized_mutual_info_score(fitted_classes, bertopic_labels),
            100 * float(np.mean(np.array(bertopic_labels) == -1)),
        ]
        topic_of = {label: int(np.bincount(labels[np.array(kmeans_labels) == label]).argmax()) for label in words}
        values = [name_f1(words[label][:NAME_WORDS], terms, members == topic) for label, topic in topic_of.items()]
        names.append(100 * float(np.mean(values)))
    except ImportError:
        nmi, names = [*nmi, None, None], [*names, None]
    ceiling = named(result, terms, members, lambda topic: best_words(commonest[topic], terms, members == topic))
    head = [set_name, model_name]
    return [*head, n_classes, len(fitted), *nmi], [*head, *names, ceiling]


def main() -> None:
    """Print the tables."""
    parser = make_parser(__doc__, data="clustering/", write=PAGE)
    options = parser.parse_args()
    rows = [compare(options.data, set_name, model) for set_name in SETS for model in MODELS]
    clusters = markdown_table(
        ["set", "model", "classes", "texts", "random", "pellucid", "BERTopic", "its outliers, %"],
        [row[0] for row in rows],
        2,
    )
    names = markdown_table(
        ["set", "model", "commonest words", "pellucid", "log-odds alone", "pull alone", "c-TF-IDF", "best"],
        [row[1] for row in rows],
        2,
    )
    about = (__doc__ or "").partition("--write")[2].strip().split("\n\n")
    page = f"# Topics\n\n`python -m benchmarks.topics`. {measured()}\n\n{about[0]}\n\n{clusters}\n{about[1]}\n\n{names}"
    print(page)
    if options.write:
        options.write.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
