"""Random formulas on random rows: features keep to their public bounds, and no row sees another."""

import json

import numpy as np
import pandas as pd
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nadpvi.design import Design, make_design
from nadpvi.encoding import encode_features
from nadpvi.errors import ArgumentError, SchemaError
from nadpvi.private.records import make_records
from nadpvi.schema import Schema

NUMBERS = st.one_of(
    st.floats(-5, 5),
    st.floats(0, 1e-3),
    st.integers(-5, 100).map(float),
    st.tuples(st.sampled_from([-1, 1]), st.floats(-12, 12)).map(lambda pair: pair[0] * 10.0 ** pair[1]),
)
LEVELS = ("a", "b", "c")


@st.composite
def columns(draw):
    kind = draw(st.sampled_from(["real", "real", "real", "count", "binary", "categorical", "ordered"]))
    column = {"kind": kind}
    if kind == "real":
        column["lower"], column["upper"] = sorted((draw(NUMBERS), draw(NUMBERS)))
        column["feature_range"] = sorted((draw(NUMBERS), draw(NUMBERS)))
        if column["lower"] > 0.0:
            column["transform"] = draw(st.sampled_from([None, "log", "log1p"]))
            column = {key: value for key, value in column.items() if value is not None}
    elif kind == "count":
        column["lower"], column["upper"] = sorted(
            draw(st.lists(st.integers(0, 10**15), min_size=2, max_size=2))
        )
    else:
        column["levels"] = LEVELS[:2] if kind == "binary" else LEVELS
    if kind == "ordered":
        column["coding"] = draw(st.sampled_from(["steps", "score"]))
    return column


def scaled(draw, inner):
    low, high = sorted((draw(NUMBERS), draw(NUMBERS)))
    return f"scaled({inner}, {low!r}, {high!r})"


@st.composite
def factors(draw, described):
    name = draw(st.sampled_from(sorted(described)))
    column = described[name]
    kind = draw(st.sampled_from(["plain", "log", "log1p", "sqrt", "scaled", "power", "poly", "spline"]))
    if kind == "plain" or "levels" in column:
        return name
    if kind in ("log", "log1p", "sqrt"):
        return f"{kind}({name})"
    inner = draw(st.sampled_from([name, f"log1p({name})", f"sqrt({name})"]))
    inner = scaled(draw, inner) if kind == "scaled" or draw(st.booleans()) else inner
    if kind == "scaled":
        return inner
    if kind == "power":
        return f"I({inner}**{draw(st.integers(2, 10))})"
    if kind == "poly":
        return f"poly({inner}, {draw(st.integers(1, 5))}, raw=True)"
    knots = sorted(draw(st.lists(st.floats(column["lower"], column["upper"]), max_size=3)))
    return f"bs({name}, knots={knots!r}, degree={draw(st.integers(1, 5))}, include_intercept=True)"


@st.composite
def designs(draw):
    described = draw(st.dictionaries(st.sampled_from(["u", "v", "w"]), columns(), min_size=1, max_size=3))
    terms = draw(
        st.lists(st.lists(factors(described), min_size=1, max_size=3).map(":".join), min_size=1, max_size=3)
    )
    formula = "y ~ " + " + ".join(terms) + draw(st.sampled_from(["", " - 1"]))
    outcome = {"y": {"kind": "binary", "levels": ["n", "y"]}}
    try:
        return make_design(Schema.from_dict({"columns": described | outcome}), outcome="y", formula=formula)
    except (ArgumentError, SchemaError):  # bounds that a function, or a scale, cannot have
        assume(False)


def cells(column):
    if not hasattr(column, "lower"):
        return st.sampled_from(column.levels)
    low, high = float(column.lower), float(column.upper)
    edges = [low, high, np.nextafter(low, high), np.nextafter(high, low), 0.0, -0.0, np.inf, -np.inf, 1e308]
    number = st.sampled_from([*map(float, edges)]) | st.floats(low, high)
    whole = number.map(lambda value: float(round(value)) if np.isfinite(value) else value)
    return whole if column.kind == "count" else number


@settings(max_examples=60, deadline=None)
@given(design=designs(), data=st.data())
def test_no_row_leaves_the_public_bounds(design, data):
    num_rows = data.draw(st.integers(2, 6))
    table = pd.DataFrame(
        {
            column.name: data.draw(st.lists(cells(column), min_size=num_rows, max_size=num_rows))
            for column in design.schema.columns
        }
    )
    x, is_complete = encode_features(design, table)
    assert is_complete.all()
    low, high = map(np.array, design.feature_bounds)
    assert ((low <= x) & (x <= high)).all()
    assert (np.linalg.norm(x, axis=1) <= design.feature_norm_bound * (1 + 1e-12)).all()
    upper = np.triu_indices(x.shape[1])
    products = np.einsum("ni,nj->nij", x, x)[:, upper[0], upper[1]]
    assert (np.linalg.norm(products, axis=1) <= design.outer_product_bound * (1 + 1e-12)).all()
    alone = np.concatenate([encode_features(design, table.iloc[[place]]).x for place in range(num_rows)])
    np.testing.assert_array_equal(alone, x)
    read = Design.from_dict(json.loads(json.dumps(design.to_dict())))
    assert read == design
    np.testing.assert_array_equal(encode_features(read, table).x, x)
    try:
        stored = make_records(table, design, storage="float32").x
    except ArgumentError:
        assert max(np.abs(low).max(), np.abs(high).max()) > np.finfo(np.float32).max
    else:
        np.testing.assert_allclose(stored, x, rtol=1e-7, atol=1e-40)
