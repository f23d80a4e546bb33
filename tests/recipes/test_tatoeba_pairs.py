"""English paraphrases from sentences with one translation: what counts as one, and what is left out."""

import lzma

import pytest


@pytest.fixture
def tatoeba(opened):
    return opened("recipes.tatoeba_pairs")


def written(path, *lines):
    path.write_bytes(lzma.compress("".join(f"{line}\n" for line in ("en\txx", *lines)).encode()))
    return path


def test_pairs_share_a_translation_and_differ_in_letters(tatoeba, tmp_path):
    lines = ["He left.\til est parti", "HE LEFT!\til est parti", "He is gone.\til est parti", "She left.\telle"]
    path = written(tmp_path / "en-fr.tsv.xz", *lines, "Ｈe left\til est parti", "...\til est parti", "No tab")
    assert tatoeba.paraphrases(path) == [("He left.", "He is gone.")]
    assert tatoeba.paraphrases(path, held_out={"heisgone"}) == []


def test_a_pair_comes_once_whatever_its_order_and_case(tatoeba, tmp_path):
    lines = ["A dog.\tun", "One dog.\tun", "one dog\tdeux", "a dog\tdeux"]
    assert tatoeba.paraphrases(written(tmp_path / "en-fr.tsv.xz", *lines)) == [("A dog.", "One dog.")]
    written(tmp_path / "en-de.tsv.xz", "ONE DOG\teins", "A DOG\teins", "Two cats.\tzwei", "Two felines.\tzwei")
    both = tatoeba.all_paraphrases(tmp_path)
    assert sorted(both) == [("ONE DOG", "A DOG"), ("Two cats.", "Two felines.")]
    assert tatoeba.all_paraphrases(tmp_path) == both


def test_test_sentences_are_found_in_every_set(tatoeba, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "test.tsv").write_text('score\tsentence1\tsentence2\n1\t"Hi, you\tA cat.\n', encoding="utf-8")
    (tmp_path / "other.tsv").write_text("text\tlabel\nA dog\t1\n", encoding="utf-8")
    assert tatoeba.test_sentences(tmp_path) == {"hiyou", "acat"}


def test_the_real_pairs_hold_no_test_sentence(tatoeba, shared):
    held_out = tatoeba.test_sentences(shared / "data" / "sts")
    path = shared / "data" / "parallel" / "tatoeba" / "en-zh.tsv.xz"
    pairs, all_of_them = tatoeba.paraphrases(path, held_out), tatoeba.paraphrases(path)
    assert 2_000 < len(pairs) <= len(all_of_them)
    assert tatoeba.letters("A man is playing a guitar.") in held_out
    assert not {tatoeba.letters(text) for pair in pairs for text in pair} & held_out
