"""Values of metadata: whatever a table may hold becomes a plain value, is missing, or is left out and told."""

import datetime as dt
import decimal
import enum
import json
import math
import uuid
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pellucid import Index
from pellucid.errors import InputError
from pellucid.index.values import plain_metadata


class Colour(enum.Enum):
    RED = "red"


ZONE = dt.timezone(dt.timedelta(hours=2))
KEPT = [
    (True, True),
    (np.True_, True),
    (7, 7),
    (2**53, 2**53),
    (-(2**53) - 1, "-9007199254740993"),
    (np.uint64(2**64 - 1), "18446744073709551615"),
    (1e300, 1e300),
    (math.inf, "inf"),
    (np.float32(0.5), 0.5),
    (decimal.Decimal("1.50"), 1.5),
    (decimal.Decimal("7"), 7),
    (decimal.Decimal(10) ** 30, "1" + "0" * 30),
    ("text", "text"),
    ("half \ud800", "half \ufffd"),
    (b"bytes", "bytes"),
    (dt.date(2024, 1, 2), "2024-01-02"),
    (dt.datetime(2024, 1, 2, 3, tzinfo=ZONE), "2024-01-02T03:00:00+02:00"),
    (dt.time(3, 4), "03:04:00"),
    (dt.timedelta(minutes=1.5), 90),
    (np.datetime64("2024-01-02"), "2024-01-02"),
    (np.datetime64("2024-01-02T03:04:05.123456789"), "2024-01-02T03:04:05.123456"),
    (np.timedelta64(1500, "ms"), 1.5),
    (pd.Timestamp("2024-01-02", tz="UTC"), "2024-01-02T00:00:00+00:00"),
    (pd.Timedelta(hours=1), 3600),
    (pd.Period("2024-01"), "2024-01"),
    (uuid.UUID(int=1), str(uuid.UUID(int=1))),
    (Path("a/b"), "a/b"),
    (Colour.RED, "red"),
    (["a", None, math.nan, 1], ["a", 1]),
    ((1, [2, [3]]), [1, 2, 3]),
    ({"a"}, ["a"]),
    (np.array([[1, 2], [3, 4]]), [1, 2, 3, 4]),
    (pd.Series(["a", None]), ["a"]),
    (pa.array([1, None]), [1]),
    (pa.scalar(7), 7),
]
MISSING = [None, math.nan, np.nan, np.float32("nan"), pd.NaT, pd.NA, np.datetime64("NaT"), np.timedelta64("NaT"),
           decimal.Decimal("nan"), "", b"", [], [None, math.nan], {}, {"a": None}]  # fmt: skip
LEFT_OUT = [b"\xff\xd8\xff\xe0 a picture", b"\0\1\2", list(range(1001)), {f"k{n}": n for n in range(1001)}, 10**5000,
            [{"a": 1}, 2]]  # fmt: skip


@pytest.mark.parametrize(("value", "plain"), KEPT, ids=range(len(KEPT)))
def test_a_value_is_kept_as_a_plain_one(value, plain):
    kept = plain_metadata({"x": value}, "a document")
    assert kept == {"x": plain} and type(kept["x"]) is type(plain)
    json.dumps(kept, allow_nan=False)


@pytest.mark.parametrize("value", MISSING, ids=range(len(MISSING)))
def test_what_is_missing_is_no_field(value):
    left_out = {}
    assert plain_metadata({"x": value, "y": 1}, "a document", left_out) == {"y": 1} and not left_out


@pytest.mark.parametrize("value", LEFT_OUT, ids=range(len(LEFT_OUT)))
def test_what_cannot_be_kept_is_left_out_and_told(value):
    left_out = {}
    assert plain_metadata({"x": value, "y": 1}, "a document", left_out) == {"y": 1} and list(left_out) == ["x"]


def test_objects_have_dotted_names():
    nested = {
        "meta": {"lang": "en", "by": {"name": "x", "age": None}},
        "tags": [{"t": "a"}, {"t": "b", "n": [1]}],
        3: 4,
    }
    assert plain_metadata(nested, "a document") == {
        "meta.lang": "en", "meta.by.name": "x", "tags.t": ["a", "b"], "tags.n": [1], "3": 4,
    }  # fmt: skip
    left_out = {}
    assert plain_metadata({"a.b": 1, "a": {"b": 2}, "": 3}, "a document", left_out) == {"a.b": 1}
    assert set(left_out) == {"a", ""}
    deep = {}
    for _ in range(100):
        deep = {"a": deep or 1}
    assert plain_metadata({"x": deep}, "a document", left_out) == {} and "nested" in left_out["x"]
    for wrong in (object(), [object()], {"a": object()}):
        with pytest.raises(InputError, match="field 'x' of a document is <object"):
            plain_metadata({"x": wrong}, "a document")


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates() | st.datetimes()
VALUES = st.recursive(
    SCALARS | st.binary(max_size=4) | st.decimals() | st.timedeltas(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=4))
@example({"0": b"\t"})
def test_any_metadata_becomes_plain(metadata):
    plain = plain_metadata(metadata, "a document", {})
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain_metadata(plain, "a document") == plain
    for value in plain.values():
        for item in value if isinstance(value, list) else [value]:
            assert type(item) in (str, int, float, bool) and item != ""
            assert type(item) is not int or abs(item) <= 2**53


def test_a_frame_of_every_type_is_metadata(tmp_path):
    frame = pd.DataFrame(
        {
            "price": [1.5, None],
            "day": pd.to_datetime(["2024-01-02", None]),
            "src": ["x", None],
            "count": pd.array([1, None], "Int64"),
            "kind": pd.Categorical(["a", None]),
            "span": pd.to_timedelta(["1h", None]),
            "image": [b"\xff\xd8", None],
            "owner": [{"name": "me"}, None],
        }
    )
    with Index.create(tmp_path / "index", {}) as index:
        with pytest.warns(UserWarning, match="the field 'image' is left out where it holds bytes that are no text"):
            index.add(["a loan", "a cat"], ids=["1", "2"], metadata=frame)
        assert index["1"].metadata == {
            "price": 1.5, "day": "2024-01-02T00:00:00", "src": "x", "count": 1, "kind": "a", "span": 3600,
            "owner.name": "me",
        }  # fmt: skip
        assert index["2"].metadata == {} and index.verify() == []
        for name in index["1"].metadata:
            assert [hit.id for hit in index.search("loan cat", where={name: {"exists": False}})] == ["2"]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            index.update("2", metadata={"big": 2**60, "nothing": pd.NaT})
        assert index["2"].metadata == {"big": str(2**60)}
        assert [hit.id for hit in index.search("cat", where={"big": 2**60})] == ["2"]


# --- Dates ---


DAYS = {
    "noon": dt.datetime(2024, 1, 2, 12),
    "day": "2024-01-02",
    "late": "2024-01-02T23:59:59.999999Z",
    "zone": "2024-01-03T00:30:00+01:00",  # the 2nd in UTC
    "next": dt.date(2024, 1, 3),
    "end": "2024-01-03T23:59:59.999Z",
    "list": ["2023-01-01", "2024-01-02 08:00+0000"],
    "word": "soon",
    "none": None,
}


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("2024-01-02", "noon day late zone list"),
        (dt.date(2024, 1, 2), "noon day late zone list"),
        (dt.datetime(2024, 1, 2, 12), "noon"),
        (pd.Timestamp("2024-01-02 13:00", tz="Europe/Berlin"), "noon"),
        ("2024-01-02T23:30:00Z", "zone"),
        ("2024-01-02T00:00:00", "day"),
        ({"ne": "2024-01-02"}, "next end word none"),
        (["2024-01-03", "soon"], "next end word"),
        ({"in": ["2024-01-02T12:00:00", dt.date(2024, 1, 3)]}, "noon next end"),
        ({"in": ["2024-01-03", "2023-01-01"]}, "next end list"),
        ({"in": []}, ""),
        ([], ""),
        ({"nin": []}, " ".join(DAYS)),
        ({"lt": "2024-01-03"}, "noon day late zone list"),
        ({"lte": "2024-01-02"}, "noon day late zone list"),
        ({"gt": "2024-01-02"}, "next end"),
        ({"gte": "2024-01-03"}, "next end"),
        ({"gt": "2024-01-01", "lte": "2024-01-02"}, "noon day late zone list"),
        ({"gt": "2024-01-02T12:00:00Z"}, "late zone next end"),
        ({"gt": "2024-01-02T23:59:59Z"}, "late next end"),  # by a fraction of a second
        ({"lte": "2024-01-02T12:00:00Z"}, "noon day list"),
        ({"nin": ["2024-01-03", "2023-01-01"]}, "noon day late zone word none"),
        ({"gte": "2024-01-02", "lt": "2024-01-03"}, "noon day late zone list"),
        ("soon", "word"),
        ("9999-12-31", ""),
    ],
)
def test_dates_compare_as_moments(tmp_path_factory, where, found):
    folder = tmp_path_factory.getbasetemp() / "days"
    if not folder.exists():
        with Index.create(folder, {}) as index:
            index.add(["text"] * len(DAYS), ids=DAYS, metadata=[{"day": value} for value in DAYS.values()])
    with Index.open(folder) as index:
        assert {hit.id for hit in index.search("text", 20, where={"day": where})} == set(found.split())


@given(st.datetimes(dt.datetime(1, 1, 3), dt.datetime(9999, 12, 30)), st.integers(-1439, 1439))
def test_a_moment_is_the_same_in_any_zone(moment, minutes):
    from pellucid.index.metadata import timestamp

    there = moment.replace(tzinfo=dt.timezone.utc).astimezone(dt.timezone(dt.timedelta(minutes=minutes)))
    assert timestamp(there.isoformat()) == pytest.approx(timestamp(moment.isoformat()), abs=1e-6)
    assert timestamp(there.isoformat(" ")) == timestamp(there.isoformat())
