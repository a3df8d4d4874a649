"""Shared small tables and schemas; no test touches the user's own cache or state."""

import numpy as np
import pandas as pd
import pytest

import nadpvi as na


@pytest.fixture(autouse=True, scope="session")
def private_cache(tmp_path_factory):
    """Point the package's cache and state at folders of this test session, unless the caller has set them."""
    import os

    patch = pytest.MonkeyPatch()
    for name in ("NADPVI_CACHE_DIR", "NADPVI_STATE_DIR"):
        if name not in os.environ:
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
    yield
    patch.undo()


@pytest.fixture
def schema():
    """A small public schema with one column of each kind."""
    return na.Schema.from_dict(
        {
            "columns": {
                "age": {"kind": "real", "lower": 0, "upper": 100},
                "gain": {"kind": "real", "lower": 0, "upper": 99999, "transform": "log1p"},
                "job": {"kind": "categorical", "levels": ["a", "b", "c"]},
                "y": {"kind": "binary", "levels": ["no", "yes"]},
            }
        }
    )


@pytest.fixture
def table():
    """200 rows that follow the schema, with a signal in age."""
    rng = np.random.default_rng(1)
    age = rng.uniform(0, 100, 200)
    job = rng.choice(["a", "b", "c"], 200)
    chance = 1 / (1 + np.exp(-(age / 25 - 2)))
    return pd.DataFrame(
        {
            "age": age,
            "gain": rng.choice([0.0, 500.0, 9000.0], 200),
            "job": job,
            "y": np.where(rng.random(200) < chance, "yes", "no"),
        }
    )
