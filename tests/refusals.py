"""Tables of calls that must be refused, each with what its message says."""

import inspect

import pytest

from pellucid.errors import InputError


def refused(*rows):
    """Return a test of rows: a call, what is said or None, and the error, of most InputError.

    The parameters of a call that have no default are the fixtures that it needs.
    """

    @pytest.mark.parametrize(("call", "message", "error"), [(*row, InputError)[:3] for row in rows])
    def test(call, message, error, request):
        parameters = inspect.signature(call).parameters.values()
        fixtures = [request.getfixturevalue(p.name) for p in parameters if p.default is p.empty]
        with pytest.raises(error, match=message):
            call(*fixtures)

    return test
