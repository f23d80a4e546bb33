"""Models and an index behind HTTP: OpenAI's embeddings API, text-embeddings-inference's, and ours with reasons."""

from typing import TYPE_CHECKING

from pellucid._lazy import lazy

if TYPE_CHECKING:
    from pellucid.server.app import create_app as create_app
    from pellucid.server.running import serve as serve
    from pellucid.server.service import ServerSettings as ServerSettings
else:
    __getattr__, __dir__, __all__ = lazy(
        __name__,
        {
            "pellucid.server.app": "create_app",
            "pellucid.server.running": "serve",
            "pellucid.server.service": "ServerSettings",
        },
    )
