"""The table of other teachers: models beside static-en, and a teacher of which the vectors are cached."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from papers.swe import teachers
from papers.vector_cache import CachedEncoder


def test_models_and_teachers_stand_beside_the_bundled_one(fruit, tmp_path, monkeypatch):
    fruit.save_pretrained(tmp_path / "model")
    asked = []

    def scores(models, data):
        asked.append(models)
        more = len(asked)
        yield from ([name, 70.0, 70.0 + more, f"+{more}.0"] for name in ("STS12", "STS", "SciFact", "retrieval"))

    monkeypatch.setattr(teachers, "scores", scores)
    options = SimpleNamespace(
        model=[("other", tmp_path / "model")], teacher=[("big", tmp_path / "kept")], data=tmp_path
    )
    figures = dict(teachers.measure(options))
    assert figures["teachers-sets"].rows[0] == ["STS12", 70.0, 71.0, 72.0]
    assert figures["teachers"].rows == [
        ["other", 71.0, "+1.0", 71.0, "+1.0"],
        ["big, the teacher itself", 72.0, "+2.0", 72.0, "+2.0"],
    ]
    assert figures["teachers"].cell("other", "retrieval, more than static-en") == "+1.0"


def test_a_teacher_gives_the_vectors_that_are_kept_and_no_others(tmp_path):
    rows = np.eye(2, dtype=np.float32)
    CachedEncoder("big", lambda texts: rows[: len(texts)], tmp_path)(["a", "b"])
    teacher = teachers.Teacher("big", str(tmp_path))
    assert (teacher.encode(["b", "a"]) == rows[::-1]).all()
    with pytest.raises(SystemExit, match="1 texts have no vector, 'c'"):
        teacher.encode(["a", "c"])
