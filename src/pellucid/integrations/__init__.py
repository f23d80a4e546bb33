"""Adapters to other libraries, a module each: `from pellucid.integrations.langchain import PellucidEmbeddings`.

Each module imports its library. Their paths are public, since Haystack and spaCy write them into saved pipelines.
"""
