"""A small model of every family, for the tests of what holds for all of them."""

import pytest

from families import VARIANTS, every_model


@pytest.fixture(scope="session")
def every_family(tmp_path_factory):
    """A model of each family by name, built once: copy one to change it."""
    return every_model(tmp_path_factory.mktemp("bert"))


@pytest.fixture
def model(every_family, name):
    """The model of the family, or of a family in other settings, `name`."""
    if name.partition(",")[0] not in every_family:
        pytest.skip("needs torch")
    return VARIANTS[name](every_family) if name in VARIANTS else every_family[name]
