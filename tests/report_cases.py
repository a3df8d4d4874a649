"""Posteriors of every kind for tests of the report, made in moments, and a reader of its tables."""

import functools
import warnings
from html.parser import HTMLParser
from typing import NamedTuple

import numpy as np
import pandas as pd

import nadpvi as na

BUDGET = na.PrivacyBudget(epsilon=4.0, delta=1e-5)
CONFIG = na.DPVIConfig(num_steps=120, sampling_rate=0.2, preconditioner_u=10.0, clip_norm=2.0)
NASTY = "<script>alert(1)</script>"

SCHEMA = na.Schema.from_dict(
    {
        "columns": {
            "age": {"kind": "real", "lower": 0, "upper": 100},
            "income": {"kind": "real", "lower": 1, "upper": 10000, "transform": "log"},
            "grade": {"kind": "ordered", "levels": ["low", "mid", "high"]},
            NASTY: {"kind": "real", "lower": 0, "upper": 1},
            "job": {"kind": "categorical", "levels": ["a & b", "$x$", "größe"]},
            "visits": {"kind": "count", "upper": 20},
            "party": {"kind": "categorical", "levels": ["l", "m", "r"]},
            "weight": {"kind": "real", "lower": 0, "upper": 200},
            "y": {"kind": "binary", "levels": ["no", "yes"]},
        }
    }
)

_PREDICTORS = ("age", NASTY, "job")
MODELS = {
    "logistic": na.models.LogisticRegression(outcome="y", predictors=_PREDICTORS),
    "linear": na.models.LinearRegression(outcome="weight", predictors=("age",)),
    "poisson": na.models.PoissonRegression(outcome="visits", predictors=("income", "grade")),
    "multinomial": na.models.MultinomialLogisticRegression(outcome="party", predictors=("age", "job")),
    "formula": na.models.LogisticRegression(formula="y ~ bs(age, knots=[50]) + job * income"),
    "coin": na.models.BernoulliBeta(outcome="y"),
    "dirichlet": na.models.CategoricalDirichlet(outcome="party"),
}


@functools.cache
def people(num_rows=400):
    """Rows that follow the schema."""
    rng = np.random.default_rng(3)
    age = rng.uniform(0, 100, num_rows)
    return pd.DataFrame(
        {
            "age": age,
            NASTY: rng.random(num_rows),
            "job": rng.choice(["a & b", "$x$", "größe"], num_rows),
            "income": np.exp(rng.uniform(0, 9, num_rows)),
            "grade": rng.choice(["low", "mid", "high"], num_rows),
            "visits": rng.poisson(3, num_rows).clip(0, 20),
            "party": rng.choice(["l", "m", "r"], num_rows),
            "weight": rng.uniform(40, 120, num_rows),
            "y": np.where(rng.random(num_rows) < age / 100, "yes", "no"),
        }
    )


@functools.cache
def release_of(name, **settings):
    """A private release of one of the models."""
    return na.release(MODELS[name], people(), schema=SCHEMA, privacy=BUDGET, config=CONFIG, **settings)


@functools.cache
def posterior_of(name, *, method="exact", draws=100):
    """Its posterior; that it is short is not what these tests are about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", na.InferenceWarning)
        return na.infer(
            release_of(name), method=method, draws=draws, chains=2, warmup=100, seed=4, subsampling_noise=True
        )


@functools.cache
def foreign_release():
    """A trace from elsewhere, without model and guarantee."""
    rng = np.random.default_rng(1)
    phi, gradient, now = np.empty((400, 2)), np.empty((400, 2)), np.zeros(2)
    for t in range(400):
        phi[t], gradient[t] = now, 50.0 * (now - 1.0) + 40.0 * rng.standard_normal(2)
        now = now - 0.002 * gradient[t]
    return na.Release.from_arrays(
        phi=phi,
        noisy_gradient=gradient,
        noise_multiplier=20.0,
        clip_norm=2.0,
        sampling_rate=0.1,
        learning_rate=0.002,
        phi_labels=("a", NASTY),
    )


class Page(NamedTuple):
    """What a page holds: text, tables by caption (header row first), tags, attributes."""

    text: str
    tables: dict
    tags: list
    attributes: list


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.text, self.tables, self.tags, self.attributes = [], {}, [], []
        self.open, self.row, self.cell, self.caption, self.rows = [], None, None, None, None

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.append((tag, dict(attrs)))
        if tag == "table":
            self.rows = []
        elif tag == "caption":
            self.caption = ""
        elif tag == "tr":
            self.row = []
        elif tag in ("th", "td"):
            self.cell = ""
        self.open.append(tag)

    def handle_endtag(self, tag):
        if tag == "table":
            self.tables[" ".join(self.caption_text.split())] = self.rows
        elif tag == "caption":
            self.caption_text, self.caption = self.caption, None
        elif tag == "tr":
            self.rows.append(self.row)
        elif tag in ("th", "td"):
            self.row.append(" ".join(self.cell.split()))
            self.cell = None

    def handle_data(self, data):
        self.text.append(data)
        if self.caption is not None:
            self.caption += data
        elif self.cell is not None:
            self.cell += data


def read_page(html):
    """Return what a browser would find in a page."""
    reader = _Reader()
    reader.feed(html)
    return Page(" ".join(" ".join(reader.text).split()), reader.tables, reader.tags, reader.attributes)
