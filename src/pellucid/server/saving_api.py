"""Our own API, the part that writes: an edited model as a new one, and the settings of the index.

Both are refused unless the server was started with a folder to save to.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from pellucid.base import Embedder
from pellucid.dimensions import Which
from pellucid.errors import InputError
from pellucid.server.errors import ApiError, InferenceError, answer, described
from pellucid.server.routing import RequestBody, Route, Weights
from pellucid.server.service import Service
from pellucid.static.embedder import static_model

_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$")]


class ModelEdit(RequestBody):
    """The body of POST /models; what is changed is done in this order."""

    name: _Name = Field(description="Of the new model, and of its folder: letters, digits, and . _ - between them.")
    model: str | None = Field(None, description="The model that is edited; the first without one.")
    scale: Weights = Field({}, description="Dimension -> factor of its coordinate.")
    without: Annotated[list[str], Field(max_length=1000, fail_fast=True)] = Field([], description="Dimensions to drop.")
    words: Weights = Field({}, description="Of a static model: word -> factor of its vector.")


class SavedModel(BaseModel):
    """The model that was saved."""

    name: str
    dimension: int


class IndexSettings(RequestBody):
    """The body of POST /index; what is not given stays."""

    weights: Weights | None = Field(None, description="Of the parts of the score; brought to the sum 1.")
    word_weights: Weights | None = Field(None, description="Of words of the query; {} lets all count 1.")


def routes(service: Service) -> APIRouter:
    """Return the routes that write."""
    router = APIRouter(tags=["pellucid"], route_class=Route, responses=described(InferenceError, 403, 404, 409))

    @router.post("/models", response_model=SavedModel)
    async def save_model(body: ModelEdit) -> Response:
        """Save an edited model as a new one, and serve it at once."""
        service.saved_to()
        model = service.models[service.model_name(body.model)]
        await service.save_model(body.name, lambda: _edited(model, body))
        return answer({"name": body.name, "dimension": service.models[body.name].get_embedding_dimension()})

    @router.post("/index", response_model=dict[str, Any])
    async def save_index_settings(body: IndexSettings) -> Response:
        """Keep weights as those of the index, for every later search that gives none."""
        service.saved_to()
        index = service.searched()
        if service.settings.read_only:
            raise ApiError(403, "the index is open for reading alone; change it where it is written")
        await service.in_thread_whole(lambda: index.configure(weights=body.weights, word_weights=body.word_weights))
        return answer({"weights": index.weights, "word weights": index.word_weights})

    return router


def _edited(model: Embedder, edit: ModelEdit) -> Embedder:
    """Return a model after an edit.

    Raises:
        InputError: it changes nothing, or names what the model does not have.
    """
    if not (edit.words or edit.scale or edit.without):
        raise InputError("nothing would change; give scale, without or words")
    factors: dict[Which, float] = {name: factor for name, factor in edit.scale.items()}
    edited = model.scale(factors) if factors else model
    edited = edited.without(edit.without) if edit.without else edited
    return static_model(edited, "words").reweight(edit.words) if edit.words else edited
