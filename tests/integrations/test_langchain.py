"""LangChain's own tests of embeddings and retrievers."""

import pytest

pytest.importorskip("langchain_tests", reason="langchain-tests is not installed")
from langchain_tests.integration_tests import EmbeddingsIntegrationTests, RetrieversIntegrationTests
from langchain_tests.unit_tests import EmbeddingsUnitTests

import pellucid
from pellucid.integrations.langchain import PellucidEmbeddings, PellucidRetriever

pytestmark = [
    pytest.mark.full,
    pytest.mark.asyncio,  # some of the tests are coroutines
    pytest.mark.filterwarnings("ignore:.*is not an async function"),
    pytest.mark.enable_socket,  # the event loop needs one
]


class _Embeddings:
    embeddings_class = PellucidEmbeddings
    embedding_model_params = {"model": "static-en"}  # noqa: RUF012 - their tests ask for attributes


class TestUnits(_Embeddings, EmbeddingsUnitTests):
    pass


class TestStore(_Embeddings, EmbeddingsIntegrationTests):
    pass


class TestRetriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def index(self, tmp_path, fruit):
        pytest.importorskip("Stemmer", reason="PyStemmer is not installed")
        with pellucid.Index.create(tmp_path / "index", fruit) as self.made:
            self.made.add([f"apple and pear, {n}" for n in range(8)], ids=[str(n) for n in range(8)])
            yield

    @property
    def retriever_constructor(self):
        return PellucidRetriever

    @property
    def retriever_constructor_params(self):
        return {"index": self.made}

    @property
    def retriever_query_example(self):
        return "an apple"
