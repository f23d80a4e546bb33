"""Tables of calls that must be refused, each with what its message says."""

import inspect

import pytest

from pellucid.errors import InputError


def refused(*rows):
    """Return the mark that gives a test its rows: a call, what is said or None, and the error, of most InputError."""
    return pytest.mark.parametrize(("call", "message", "error"), [(*row, InputError)[:3] for row in rows])


def check_refused(request, call, message, error):
    """Check that a call fails as its row says; its parameters without a default are the fixtures it needs."""
    parameters = inspect.signature(call).parameters.values()
    fixtures = [request.getfixturevalue(p.name) for p in parameters if p.default is p.empty]
    with pytest.raises(error, match=message):
        call(*fixtures)
