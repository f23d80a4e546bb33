"""Adapters to other libraries, a module each: `from pellucid.integrations.langchain import PellucidEmbeddings`.

A module imports its library when it is itself imported. The paths of the modules are public, since Haystack and spaCy
write them into saved pipelines.
"""
