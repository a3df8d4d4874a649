"""The public description: what it accepts, what it refuses and how it travels."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nadpvi.encoding import encode_features, encode_outcome, make_design
from nadpvi.errors import DataError, FileError, SchemaError
from nadpvi.schema import BinaryColumn, CategoricalColumn, OrderedColumn, RealColumn, Schema

COLUMNS = {
    "age": {"kind": "real", "lower": 17, "upper": 90},
    "gain": {
        "kind": "real",
        "lower": 0,
        "upper": 99_999,
        "transform": "log1p",
        "missing": "drop",
        "missing_values": ["", "-9"],
    },
    "sex": {"kind": "binary", "levels": ["Female", "Male"], "unknown": "drop"},
    "country": {"kind": "categorical", "levels": ["NA", "SE", "other"], "unknown": "other"},
    "pain": {"kind": "ordered", "levels": ["none", "mild", "severe"], "missing": "none"},
    "weight": {
        "kind": "real",
        "lower": 1,
        "upper": 300,
        "transform": "log",
        "missing": 70,
        "unknown": "drop",
    },
    "visits": {"kind": "count", "upper": 20, "missing": 0, "unknown": 1},
}


def test_round_trip_through_json_is_exact():
    schema = Schema.from_dict({"columns": COLUMNS})
    text = json.dumps(schema.to_dict(), sort_keys=True)
    assert Schema.from_dict(json.loads(text)) == schema
    assert schema.names == tuple(COLUMNS)
    awkward = Schema(
        columns=(RealColumn(name="x", lower=0.1, upper=1 / 3), RealColumn(name="y", lower=-1, upper=2))
    )
    assert Schema.from_dict(json.loads(json.dumps(awkward.to_dict()))) == awkward


def test_toml_equals_the_python_form(tmp_path: Path):
    path = tmp_path / "schéma (v2).toml"
    path.write_text(
        '\ufeff[columns.age]\nkind = "real"\nlower = 17\nupper = 90\n'
        '[columns."größe in cm"]\nkind = "real"\nlower = 0.5\nupper = 250\nmissing = "drop"\n'
        '[columns.sex]\nkind = "binary"\nlevels = ["Female", "Male"]\n',
        encoding="utf-8",
    )
    assert Schema.from_toml(path) == Schema(
        columns=(
            RealColumn(name="age", lower=17, upper=90),
            RealColumn(name="größe in cm", lower=0.5, upper=250, missing="drop"),
            BinaryColumn(name="sex", levels=("Female", "Male")),
        )
    )


def test_lookup_by_name():
    schema = Schema.from_dict({"columns": COLUMNS})
    assert schema["sex"].kind == "binary"
    assert "sex" in schema
    assert "wages" not in schema
    with pytest.raises(SchemaError, match=r'no column "wages"; it knows "age", "gain", "sex", "country"'):
        schema["wages"]


REAL = {"kind": "real", "lower": 0, "upper": 1}
LEVELS = {"kind": "categorical", "levels": ["a", "b"]}

INCONSISTENT = {
    "unknown kind": ({"kind": "reel"}, '"real", "binary", "categorical"'),
    "no kind": ({"lower": 0}, "kind must be one of"),
    "kind of another type": ({"kind": 3}, "kind must be one of"),
    "not a table": ("real", 'kind = "real"'),
    "unknown key": ({**REAL, "uper": 2}, '"uper"; a real column knows'),
    "name given twice over": ({**REAL, "name": "other"}, 'unknown setting "name"'),
    "key of another kind": ({**REAL, "levels": ["a", "b"]}, '"levels"; a real column knows'),
    "no lower": ({"kind": "real", "upper": 1}, "lower is not given"),
    "no levels": ({"kind": "binary"}, "levels is not given"),
    "lower above upper": ({**REAL, "lower": 2}, "lower must be below upper"),
    "lower equals upper": ({**REAL, "lower": 1}, "lower must be below upper"),
    "infinite bound": ({**REAL, "upper": float("inf")}, "upper must be finite"),
    "NaN bound": ({**REAL, "lower": float("nan")}, "lower must be finite"),
    "bound beyond floats": ({**REAL, "upper": 10**400}, "upper must be finite"),
    "bounds too far apart": ({**REAL, "lower": -1e308, "upper": 1e308}, "choose other bounds"),
    "bounds that log1p merges": (
        {**REAL, "lower": 1e16, "upper": 1e16 + 2, "transform": "log1p"},
        "choose other bounds",
    ),
    "bound as text": ({**REAL, "lower": "0"}, "lower must be a number"),
    "bound as truth value": ({**REAL, "lower": False}, "lower must be a number"),
    "log1p below its pole": ({**REAL, "lower": -1, "transform": "log1p"}, "needs lower above -1"),
    "log at its pole": ({**REAL, "transform": "log"}, "transform log needs lower above 0"),
    "missing number outside": ({**REAL, "missing": 2}, "missing must be within the bounds 0 and 1"),
    "unknown number outside": ({**REAL, "unknown": -0.5}, "unknown must be within the bounds 0 and 1"),
    "infinite missing number": ({**REAL, "missing": float("inf")}, "missing must be finite"),
    "missing as truth value": ({**REAL, "missing": True}, '"refuse" or "drop", or a number'),
    "fraction for a count": ({"kind": "count", "upper": 9, "unknown": 1.5}, "must be a whole number"),
    "missing not a level": ({**LEVELS, "missing": "c"}, "missing must be"),
    "unknown coding": ({**LEVELS, "kind": "ordered", "coding": "helmert"}, '"steps" or "score"'),
    "one ordered level": ({"kind": "ordered", "levels": ["a"]}, "at least two"),
    "bounds to be filled in": ({**REAL, "upper": "FILL IN"}, 'upper is still "FILL IN"; write what is'),
    "levels to be filled in": ({**LEVELS, "levels": ["a", "FILL IN"]}, 'levels is still "FILL IN"'),
    "unknown transform": ({**REAL, "transform": "sqrt"}, 'transform must be "log" or "log1p"'),
    "unknown missing policy": ({**REAL, "missing": "ignore"}, '"refuse" or "drop"'),
    "missing policy of another type": ({**REAL, "missing": ["drop"]}, '"refuse" or "drop"'),
    "missing_values as text": ({**REAL, "missing_values": "NA"}, "must be a list of texts"),
    "missing_values as numbers": ({**REAL, "missing_values": [-9]}, "each in quotes"),
    "one level": ({**LEVELS, "levels": ["a"]}, "at least two"),
    "three levels of a binary": ({"kind": "binary", "levels": ["a", "b", "c"]}, "exactly two"),
    "duplicate level": ({**LEVELS, "levels": ["a", "b", "a"]}, '"a" twice'),
    "levels as text": ({**LEVELS, "levels": "ab"}, "must be a list of texts"),
    "levels as numbers": ({**LEVELS, "levels": [0, 1]}, "each in quotes"),
    "unknown not a level": ({**LEVELS, "unknown": "c"}, "one of the levels"),
}


@pytest.mark.parametrize(("entry", "remedy"), INCONSISTENT.values(), ids=INCONSISTENT.keys())
def test_inconsistent_column_is_one_line_with_name_and_remedy(entry: object, remedy: str):
    with pytest.raises(SchemaError) as caught:
        Schema.from_dict({"columns": {'odd "column': entry}})
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert r'"odd \"column"' in message
    assert remedy in message


UNPRINTABLE = ["\0", "\x1b", "\n", "\t", "\x7f", "\ud800", "\u200b", "\u202e", "\u2028", "\xa0"]


@pytest.mark.parametrize("character", UNPRINTABLE, ids=ascii)
@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda text: RealColumn(name=text, lower=0, upper=1), "its name"),
        (lambda text: BinaryColumn(name=text, levels=("a", "b")), "its name"),
        (lambda text: CategoricalColumn(name=text, levels=("a", "b")), "its name"),
        (lambda text: BinaryColumn(name="x", levels=("a", text)), "entry 2 of levels"),
        (lambda text: CategoricalColumn(name="x", levels=(text, "b")), "entry 1 of levels"),
        (
            lambda text: RealColumn(name="x", lower=0, upper=1, missing_values=("", text)),
            "entry 2 of missing_values",
        ),
        (
            lambda text: CategoricalColumn(name="x", levels=("a", "b"), missing_values=(text,)),
            "entry 1 of missing_values",
        ),
        (lambda text: Schema.from_dict({"columns": {text: REAL}}), "its name"),
        (lambda text: Schema.from_dict({"columns": [{"name": text, **REAL}]}), "its name"),
        (lambda text: Schema.from_dict({"columns": {text: "no table"}}), "its name"),
    ],
)
def test_unprintable_text_is_refused_escaped(make: Callable[[str], object], place: str, character: str):
    with pytest.raises(SchemaError) as caught:
        make(f"v{character}w")
    message = str(caught.value)
    assert message.isprintable()
    assert message.startswith("schema column ")
    assert f"{place} holds the unprintable character {character!a}; remove it" in message


@pytest.mark.parametrize("text", ["größe in cm", "e\u0301", "Ελλάδα", "日本", "a/b", '"', "x" * 256])
def test_blanks_and_letters_of_any_script_are_kept(text: str):
    column = CategoricalColumn(name=text, levels=(text, "other"), missing_values=("", text))
    assert column.name == column.levels[0] == text


@pytest.mark.parametrize(
    "setting", [{"name": "x" * 257}, {"levels": ["a", "x" * 257]}, {"missing_values": ["x" * 257]}]
)
def test_texts_are_bounded(setting: dict):
    with pytest.raises(SchemaError, match="has 257 characters; shorten it to 256") as caught:
        Schema.from_dict({"columns": [{"name": "x", **LEVELS, **setting}]})
    assert str(caught.value).startswith('schema column "x')
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("content", "remedy"),
    [
        ({}, "[columns.NAME]"),
        ({"columns": COLUMNS, "colour": 1}, '"colour"'),
        ({"columns": {}}, "at least one column"),
        ({"columns": 3}, "[columns.NAME]"),
        ({"columns": [REAL]}, "name must be non-empty text"),
        ({"columns": {" ": REAL}}, "name must be non-empty text"),
        ({"columns": [{"name": "x", **REAL}, {"name": "x", **REAL}]}, '"x": is described twice'),
        ([REAL], '"columns"'),
        ({"person": {"column": "id"}}, 'found "person"'),
        ({"columns": COLUMNS, "persons": {"column": "id"}}, 'perhaps "person"'),
    ],
)
def test_malformed_schema_is_one_line(content: object, remedy: str):
    with pytest.raises(SchemaError) as caught:
        Schema.from_dict(content)
    assert len(str(caught.value).splitlines()) == 1
    assert remedy in str(caught.value)


def test_columns_must_be_columns():
    with pytest.raises(SchemaError, match="RealColumn, BinaryColumn, CategoricalColumn or CountColumn"):
        Schema(columns=("age",))


def test_a_misspelt_keyword_fails():
    with pytest.raises(TypeError):
        CategoricalColumn(name="x", levels=("a", "b"), unknwon="drop")


@pytest.mark.parametrize("missing", [True, False], ids=["absent", "folder"])
def test_unreadable_schema_file_is_named(tmp_path: Path, missing: bool):
    path = tmp_path / "absent.toml" if missing else tmp_path
    with pytest.raises(FileError) as caught:
        Schema.from_toml(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_toml_mistake_gives_file_and_line(tmp_path: Path):
    path = tmp_path / "schema.toml"
    path.write_text('[columns.age]\nkind = "real"\nlower = = 3\n')
    with pytest.raises(SchemaError, match=r"schema\.toml is not valid TOML: .*line 3") as caught:
        Schema.from_toml(path)
    assert len(str(caught.value).splitlines()) == 1
    path.write_bytes(b'[columns.age]\nkind = "r\xe9el"\n')
    with pytest.raises(FileError, match="UTF-8"):
        Schema.from_toml(path)


def test_scaling_clamps_and_uses_public_bounds():
    plain = RealColumn(name="x", lower=-2, upper=6)
    raw = np.array([-np.inf, -3.0, -2.0, 0.0, 6.0, 7.0, np.inf, np.nan])
    assert plain.scale(raw).tolist()[:-1] == [0.0, 0.0, 0.0, 0.25, 1.0, 1.0, 1.0]
    assert np.isnan(plain.scale(raw)[-1])
    log = RealColumn(name="gain", lower=0, upper=99_999, transform="log1p")
    # log(1000) / log(100000) = 3/5.
    np.testing.assert_allclose(
        log.scale(np.array([0.0, 999.0, 99_999.0])), [0.0, 0.6, 1.0], rtol=0, atol=1e-15
    )
    shifted = RealColumn(name="x", lower=9, upper=999, transform="log1p")
    np.testing.assert_allclose(shifted.scale(np.array([99.0, 1.0])), [0.5, 0.0], rtol=0, atol=1e-15)


def test_log_scales_ratios():
    weight = RealColumn(name="w", lower=1, upper=100, transform="log", feature_range=(-1, 1))
    np.testing.assert_allclose(weight.scale(np.array([0.0, 10.0, 1e9])), [-1.0, 0.0, 1.0], rtol=0, atol=1e-15)
    assert weight.bounds == (0.0, np.log(100))


ORDERED = {"kind": "ordered", "levels": ["none", "mild", "severe"]}
WELL = {"kind": "binary", "levels": ["0", "1"]}


@pytest.mark.parametrize(
    ("coding", "labels", "features", "bound"),
    [
        ("steps", ("pain[>=mild]", "pain[>=severe]"), [[0, 0], [1, 0], [1, 1]], np.sqrt(2)),
        ("score", ("pain",), [[0], [0.5], [1]], 1.0),
    ],
)
def test_ordered_levels_are_steps_or_a_score(coding: str, labels: tuple, features: list, bound: float):
    schema = Schema.from_dict({"columns": {"pain": {**ORDERED, "coding": coding}, "well": WELL}})
    design = make_design(schema, outcome="well", intercept=False)
    assert design.labels == labels
    assert encode_features(design, {"pain": ["none", "mild", "severe"]}).x.tolist() == features
    assert design.feature_norm_bound == bound
    assert design.feature_bounds == ((0.0,) * len(labels), (1.0,) * len(labels))
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


def test_an_ordered_outcome_counts_its_levels():
    schema = Schema(columns=(OrderedColumn(name="pain", levels=("none", "mild", "severe")),))
    design = make_design(schema, outcome="pain", outcome_kind="categorical")
    assert encode_outcome(design, {"pain": ["severe", "none"]}).y.tolist() == [2.0, 0.0]
    assert design.outcome_levels == ("none", "mild", "severe")


@pytest.mark.parametrize(
    ("entry", "cells", "features"),
    [
        ({**REAL, "missing": 0.5, "unknown": 1}, ["0.25", "", "x", None], [[0.25], [0.5], [1.0], [0.5]]),
        ({**REAL, "missing": 0.5, "missing_values": ["-9"]}, ["-9", "2"], [[0.5], [1.0]]),
        ({"kind": "count", "upper": 4, "missing": 0, "unknown": 2}, ["", "1.5", "9"], [[0.0], [0.5], [1.0]]),
        ({**LEVELS, "missing": "a", "unknown": "b"}, ["", "z", "a"], [[1, 0], [0, 1], [1, 0]]),
        ({**WELL, "missing": "1"}, ["", "0"], [[1.0], [0.0]]),
        ({**ORDERED, "missing": "none", "unknown": "severe"}, [None, "x"], [[0, 0], [1, 1]]),
    ],
)
def test_unusable_cells_count_as_what_is_declared(entry: dict, cells: list, features: list):
    schema = Schema.from_dict({"columns": {"v": entry, "well2": WELL}})
    design = make_design(schema, outcome="well2", intercept=False)
    encoded = encode_features(design, {"v": cells})
    assert encoded.x.tolist() == features
    assert encoded.is_complete.all()


def test_numbers_that_are_none_can_drop_their_row():
    schema = Schema.from_dict({"columns": {"v": {**REAL, "unknown": "drop"}, "well": WELL}})
    design = make_design(schema, outcome="well", intercept=False)
    assert encode_features(design, {"v": ["0.5", "words"]}).is_complete.tolist() == [True, False]
    with pytest.raises(DataError, match='column "v" has missing values'):
        encode_features(design, {"v": ["0.5", ""]})
