"""Frequency tables: a column of the table that says how many records each row stands for."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import nadpvi as na
from nadpvi.cli.app import app
from nadpvi.encoding import encode_counts
from nadpvi.errors import ArgumentError, DataError, SchemaError
from nadpvi.private.records import make_records
from nadpvi.schema import Person

COLUMNS = {
    "ward": {"kind": "categorical", "levels": ["a", "b"], "unknown": "drop"},
    "well": {"kind": "binary", "levels": ["no", "yes"]},
}
SCHEMA = na.Schema.from_dict({"columns": COLUMNS, "counts": {"column": "n", "upper": 1000}})
PLAIN = na.Schema.from_dict({"columns": COLUMNS})
MODEL = na.models.LogisticRegression(outcome="well")
COUNTED = pd.DataFrame(
    {
        "ward": ["a", "a", "b", "b", "other", "a"],
        "well": ["no", "yes", "no", "yes", "no", "no"],
        "n": [30, 0, 12, 25, 9, 4],
    }
)
WRITTEN_OUT = COUNTED.loc[COUNTED.index.repeat(COUNTED["n"]), ["ward", "well"]].reset_index(drop=True)
BUDGET = na.PrivacyBudget(epsilon=1.0, delta=1e-5)
CONFIG = na.DPVIConfig(num_steps=40)


def records_of(schema, table, **changes):
    return make_records(table, MODEL.design(schema), counts=schema.counts, **changes)


def multiset(records):
    """Return how often each distinct record is there."""
    counts = np.ones(len(records.y), dtype=int) if records.counts is None else records.counts
    found = {}
    for row, y, count in zip(records.x, records.y, counts, strict=True):
        key = (*row, y)
        found[key] = found.get(key, 0) + int(count)
    return found


@pytest.mark.parametrize("collapse", [False, True])
def test_a_row_stands_for_as_many_records_as_it_says(collapse):
    counted = records_of(SCHEMA, COUNTED, collapse=collapse)
    assert multiset(counted) == multiset(make_records(WRITTEN_OUT, MODEL.design(PLAIN)))
    assert counted.num_records == 71
    assert len(counted.y) == (3 if collapse else 4)


def test_files_and_parts_give_the_same_records(tmp_path, monkeypatch):
    COUNTED.to_csv(tmp_path / "t.csv", index=False)
    COUNTED.to_parquet(tmp_path / "t.parquet", index=False)
    wanted = multiset(records_of(SCHEMA, COUNTED))
    for part_rows in (1, 4, 2**15):
        monkeypatch.setattr("nadpvi.tables.in_parts.__kwdefaults__", {"part_rows": part_rows})
        for name in ("t.csv", "t.parquet"):
            assert multiset(records_of(SCHEMA, tmp_path / name)) == wanted


def test_a_release_of_a_frequency_table_is_that_of_the_table_written_out():
    """With every record in every step and no noise to speak of, the traces agree to rounding."""
    config = dataclasses.replace(CONFIG, sampling_rate=1.0, learning_rate=0.005)
    settings = {"privacy": na.NonPrivate(), "config": config, "insecure_seed": 3}
    counted = na.release(MODEL, COUNTED, schema=SCHEMA, **settings)
    plain = na.release(MODEL, WRITTEN_OUT, schema=PLAIN, **settings)
    np.testing.assert_allclose(counted.phi, plain.phi, rtol=1e-9, atol=1e-12)
    assert counted.description.schema.counts == SCHEMA.counts
    private = na.release(MODEL, COUNTED, schema=SCHEMA, privacy=BUDGET, config=CONFIG)
    assert private.guarantee.unit == "one record"
    assert "71" not in json.dumps(private.guarantee.to_dict())


def test_a_record_more_or_less_moves_one_count():
    more = COUNTED.assign(n=COUNTED["n"] + np.array([0, 0, 1, 0, 0, 0]))
    before, after = (multiset(records_of(SCHEMA, table)) for table in (COUNTED, more))
    changed = {key for key in before | after if before.get(key) != after.get(key)}
    assert len(changed) == 1
    assert sum(after.values()) - sum(before.values()) == 1


def test_counts_follow_their_policy():
    bad = {"n": ["3", "", "-2", "2.5", "many", "5000", "0"]}
    counts = dataclasses.replace(SCHEMA.counts, missing="drop", unknown="drop")
    assert encode_counts(counts, bad).tolist() == [3, 0, 0, 0, 0, 1000, 0]
    with pytest.raises(DataError, match='"n" has missing counts') as caught:
        encode_counts(SCHEMA.counts, bad)
    assert "5000" not in str(caught.value)
    with pytest.raises(DataError, match="no whole number of at least 0") as caught:
        encode_counts(SCHEMA.counts, {"n": ["3", "-2"]})
    assert "-2" not in str(caught.value)


def test_a_table_without_the_column_is_refused_before_anything_is_spent(tmp_path):
    ledger = na.Ledger.create(tmp_path / "people.ledger", label="people", cap=BUDGET)
    with pytest.raises(DataError, match='"n"'):
        na.release(
            MODEL, COUNTED.drop(columns="n"), schema=SCHEMA, privacy=BUDGET, config=CONFIG, ledger=ledger
        )
    assert ledger.total() == 0.0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"upper": 3}, "column is not given"),
        ({"column": "n", "most": 3}, 'unknown setting "most"'),
        ({"column": "n", "upper": 0}, "upper"),
        ({"column": "n", "missing": "guess"}, "missing"),
        ({"column": "n", "unknown": 3}, "unknown"),
        ({"column": "ward"}, "ward"),
        ("n", "table of settings"),
    ],
)
def test_a_schema_s_mistakes_are_one_line(content, message):
    with pytest.raises(SchemaError, match=message) as caught:
        na.Schema.from_dict({"columns": COLUMNS, "counts": content})
    assert "\n" not in str(caught.value)


def test_a_person_and_counts_exclude_each_other():
    with pytest.raises(SchemaError, match="not both"):
        dataclasses.replace(SCHEMA, person=Person(column="id"))
    with pytest.raises(ArgumentError, match="no counts"):
        na.simulate_releases(
            na.models.BernoulliBeta(outcome="well"),
            [np.ones(3)],
            schema=na.Schema.from_dict({"columns": {"well": COLUMNS["well"]}, "counts": {"column": "n"}}),
            privacy=BUDGET,
            config=CONFIG,
            seeds=[1],
        )


def test_schemas_round_trip_and_the_command_line_reads_them(tmp_path, monkeypatch):
    assert na.Schema.from_dict(json.loads(json.dumps(SCHEMA.to_dict()))) == SCHEMA
    monkeypatch.chdir(tmp_path)
    lines = ['[counts]\ncolumn = "n"\nupper = 1000']
    for name, column in COLUMNS.items():
        lines += [f"[columns.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in column.items())]
    (tmp_path / "people.toml").write_text("\n".join(lines))
    assert na.Schema.from_toml("people.toml") == SCHEMA
    COUNTED.to_csv("people.csv", index=False)
    options = "release people.csv --schema people.toml --outcome well --epsilon 1 --delta 1e-5 --steps 40"
    result = CliRunner().invoke(app, [*options.split(), "-o", "release.nc"])
    assert result.exit_code == 0, result.output
    assert na.Release.load("release.nc").description.schema == SCHEMA
    assert CliRunner().invoke(app, ["schema", "check", "people.toml"]).exit_code == 0


def test_a_run_that_was_cut_goes_on_with_the_same_records(tmp_path):
    settings = {"schema": SCHEMA, "privacy": BUDGET, "config": CONFIG}

    def stop(done):
        if done.step == 10:
            raise KeyboardInterrupt

    with pytest.raises(na.RunInterrupted):
        na.release(MODEL, COUNTED, callback=stop, checkpoint=tmp_path / "c.ckpt", **settings)
    made = na.resume(tmp_path / "c.ckpt", COUNTED)
    assert made.num_steps == 40
