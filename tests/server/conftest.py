"""A model and a port for servers."""

import socket

import pytest

import pellucid


@pytest.fixture(scope="session")
def static():
    return pellucid.load("static-en")


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
