"""The small version of every experiment gives the numbers that were committed.

To commit others after a change that is meant: ``nadpvi coverage NAME --small --json`` into
``tests/data/experiments/NAME.json`` (``rows`` and ``versions`` of it are kept).
"""

import json
from pathlib import Path

import numpy as np
import pytest

from nadpvi.experiments.api import run_experiment
from nadpvi.experiments.configuration import load_experiment
from nadpvi.experiments.finding import experiment_names

KEPT = Path(__file__).parent / "data" / "experiments"

# Chains of these amplify the last bit of a product, which depends on the processor; the others do not.
CHAOTIC = {"nuts", "dense", "statistics_laplace", "statistics_gaussian"}
EXACT = {"rtol": 1e-5, "atol": 1e-7}
# Divided by a difference of two variances, one of them at a mode that a search found.
LESS_EXACT = {"z_dp": {"rtol": 1e-3, "atol": 1e-7}}
# Of a median or mean over the few tables and draws of a small version.
LOOSE = {"median_sd": 0.25, "crps": 0.25, "brier": 0.05}
LOOSE_BY = {"coverage_90": 0.2, "z_mean": 0.4}


@pytest.mark.slow
@pytest.mark.parametrize("name", experiment_names())
def test_a_small_version_gives_the_committed_numbers(name, tmp_path):
    experiment = load_experiment(name, is_small=True)
    result = run_experiment(experiment, folder=tmp_path)
    assert result.report.failures == ()
    kept = json.loads((KEPT / f"{name}.json").read_text())["rows"]
    rows = result.to_dict()["rows"]
    assert [(row["settings"], row["method"]) for row in rows] == [
        (row["settings"], row["method"]) for row in kept
    ]
    for row, expected in zip(rows, kept, strict=True):
        for column, value in expected.items():
            if "seconds" in column or isinstance(value, str):
                continue
            label = f"{name}: {column} of {row['method']} at {row['settings']}"
            if row["method"] not in CHAOTIC:
                found, wanted = (np.nan if v is None else v for v in (row[column], value))
                np.testing.assert_allclose(found, wanted, err_msg=label, **LESS_EXACT.get(column, EXACT))
            elif column in LOOSE:
                assert row[column] == pytest.approx(value, rel=LOOSE[column]), label
            elif column in LOOSE_BY:
                assert row[column] == pytest.approx(value, abs=LOOSE_BY[column]), label
