"""Fixtures of the tests that ask a model of every family."""

from __future__ import annotations

from typing import Any

import pytest

from families import every_model


@pytest.fixture(scope="session")
def every_family(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A small model of each family by name, built once: copy one to change it."""
    return every_model(tmp_path_factory.mktemp("bert"))
