"""Checks of arguments: one rule for numbers and one for choices, whatever the value's type."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import InputError, check_choice, check_integer, check_number, check_numbers

NO_NUMBERS = [True, "3", None, [1], 1j, math.nan, math.inf, -math.inf, 10**400, np.float32("nan")]


@given(st.integers(-5, 5) | st.floats(-5, 5), st.integers(-5, 5), st.integers(-5, 5))
def test_a_number_passes_just_where_it_keeps_to_its_limits(value, low, high):
    for limits, fits in (
        ({"least": low, "most": high}, low <= value <= high),
        ({"above": low, "below": high}, low < value < high),
    ):
        for number in (value, np.float64(value)):
            if fits:
                check_number("n", number, **limits)
                continue
            with pytest.raises(InputError, match=r"^n is .*; it must be a number, "):
                check_number("n", number, **limits)


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_what_is_no_finite_number_never_passes(value):
    for check in (check_number, lambda name, value: check_integer(name, value, -math.inf)):
        with pytest.raises(InputError, match=r"^n is .*; it must be an? (number|integer), finite$"):
            check("n", value)


def test_integers_are_those_of_python_and_numpy_and_may_be_optional():
    for value in (1, np.int64(6)):
        check_integer("n", value, most=6)
    for value in (0, 7, 2.0, np.float32(2)):
        with pytest.raises(InputError, match=r"n is .*; it must be an integer, at least 1 and at most 6$"):
            check_integer("n", value, most=6)
    check_numbers(SimpleNamespace(a=None, b=3), "a", "b", integer=True, optional=True)
    with pytest.raises(InputError, match=r"b is 0\.5; it must be an integer, above 0, or None"):
        check_numbers(SimpleNamespace(a=None, b=0.5), "a", "b", above=0, integer=True, optional=True)


def test_a_choice_is_of_the_same_type_and_the_message_names_all():
    check_choice("kind", None, (True, None))
    for value in (1, "True", 0, "None"):
        with pytest.raises(InputError, match=r"^kind is .*; it must be one of True, None$"):
            check_choice("kind", value, (True, None))
