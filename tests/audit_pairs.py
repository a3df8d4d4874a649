"""Neighbouring data sets, the engine run on them, and what an auditor measures on its traces.

The record that neighbours differ in, the canary, is as bad as a record can be: its gradient has seven times
the clip norm C, so that it is clipped to length C, in one known direction and at every step, since a step
size of 1e-12 keeps the iterates where they are. Other records either have zero gradient ("silent") or have
length C against the canary ("opposed"). The prior is so wide that the public terms add nothing.

Everything below sees traces alone, in units of C, with the knowledge that differential privacy grants an
adversary: all public settings, all other records, and the canary itself. With s_t the projection of step t
on the canary's direction, the mechanism gives s_t ~ N(0, sigma^2) without the canary and the mixture
``(1 - q) N(0, sigma^2) + q N(1, sigma^2)`` with it, so that the likelihood ratio below is the most powerful
test there is against the true mechanism. Against a broken one an auditor does not know what is broken: the
ratio is also taken for other noise, rates and shifts, and simple statistics are added that a repeated noise
vector, a rare large value or a changed variance would show in.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal
from unittest.mock import patch

import numpy as np
import pandas as pd
from audit_bounds import Bound, lower_bound, num_train
from numpy.typing import NDArray
from whole_run import whole_trace

import nadpvi as na
from nadpvi.containers.storage import package_versions
from nadpvi.description import ModelDescription
from nadpvi.mechanism import Mechanism, make_mechanism
from nadpvi.privacy.randomness import make_streams
from nadpvi.private.records import make_records

Array = NDArray[np.float64]

CLIP_NORM = 0.1
MODEL = na.models.LogisticRegression(outcome="y", predictors=("a", "b"), intercept=False, prior_sd=1e6)
# The loss falls along x for an outcome of 1: the canary's gradient points against its features.
DIRECTION = -np.ones(2) / np.sqrt(2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a run promises, and the settings that it promises it with.

    Parameters
    ----------
    epsilon, delta, num_steps, sampling_rate
        Of the guarantee.
    relation : {"add_or_remove_one", "replace_one"}
        Of the guarantee.
    person_rows : int or None
        How many rows of a person are used, if what is protected is a person.
    """

    epsilon: float
    delta: float
    num_steps: int
    sampling_rate: float
    relation: Literal["add_or_remove_one", "replace_one"] = "add_or_remove_one"
    person_rows: int | None = None

    @property
    def budget(self) -> na.PrivacyBudget:
        """The budget that a release is asked to keep."""
        return na.PrivacyBudget(epsilon=self.epsilon, delta=self.delta, neighbouring_relation=self.relation)

    @property
    def schema(self) -> na.Schema:
        """Two features and an outcome, with a person column if that is what is protected."""
        feature = {"kind": "real", "lower": 0, "upper": 1}
        columns = {"a": feature, "b": feature, "y": {"kind": "binary", "levels": ["no", "yes"]}}
        if self.person_rows is None:
            return na.Schema.from_dict({"columns": columns})
        person = {"column": "id", "max_rows": self.person_rows}
        return na.Schema.from_dict({"columns": columns, "person": person})

    @property
    def config(self) -> na.DPVIConfig:
        """Settings under which the iterates stay put and the canary is clipped."""
        return na.DPVIConfig(
            num_steps=self.num_steps,
            sampling_rate=self.sampling_rate,
            clip_norm=CLIP_NORM,
            learning_rate=1e-12,
            preconditioner_u=1e-6,
            initial_u=-25.0,
            monte_carlo_samples=1,
        )

    @property
    def unit(self) -> float:
        """The longest that one record's or person's contribution to a step can be, in clip norms."""
        return float(self.person_rows or 1)

    @property
    def sigma(self) -> float:
        """Noise standard deviation in units of `unit`."""
        return mechanism_of(self).noise_multiplier / self.unit


@functools.lru_cache
def mechanism_of(claim: Claim) -> Mechanism:
    """Return the calibrated run that makes this claim."""
    description = ModelDescription(model=MODEL, schema=claim.schema, guide=na.MeanField())
    return make_mechanism(description, privacy=claim.budget, config=claim.config)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Neighbouring data sets: some other records, with the canary and without it.

    Under "replace_one" the second data set has the canary's opposite in its place. A person is a canary of
    `canary_rows` equal rows.
    """

    num_others: int
    others: Literal["silent", "opposed"] = "silent"
    canary_rows: int = 1

    def table(self, claim: Claim, *, has_canary: bool) -> pd.DataFrame:
        """Return one of the two data sets."""
        other = (0.0, "yes") if self.others == "silent" else (1.0, "no")
        rows = [(*other, f"other {index}") for index in range(self.num_others)]
        if has_canary:
            rows += [(1.0, "yes", "canary")] * self.canary_rows
        elif claim.relation == "replace_one":
            rows += [(1.0, "no", "canary")] * self.canary_rows
        x, y, name = zip(*rows, strict=True)
        table = pd.DataFrame({"a": x, "b": x, "y": y})
        return table if claim.person_rows is None else table.assign(id=name)


ALONE = Pair(num_others=1)
CROWD = Pair(num_others=100)
OPPOSED = Pair(num_others=20, others="opposed")
PERSON = Pair(num_others=1, canary_rows=10)


def engine_traces(pair: Pair, claim: Claim, *, has_canary: bool, runs: int, seed: int | None) -> Array:
    """Return the noisy gradients of `runs` runs of the engine in units of the claim, shape (runs, T, D).

    Parameters
    ----------
    seed : int or None
        None takes the exact road of a real release: discrete Gaussian noise and ChaCha20, both from the
        operating system. A seed takes NumPy's.
    """
    mechanism, streams = mechanism_of(claim), make_streams(insecure_seed=seed)
    design, person = mechanism.description.design, mechanism.description.schema.person
    table = pair.table(claim, has_canary=has_canary)
    records = make_records(table, design, person=person, rng=streams.rows)
    settings = mechanism.settings
    noise = mechanism.noise_source(streams, num_steps=runs * claim.num_steps)
    traces = np.empty((runs, claim.num_steps, mechanism.dimension))
    for index in range(runs):
        trace = whole_trace(records, settings, noise=noise, streams=streams)
        traces[index] = trace.noisy_gradient
    return traces * (settings.preconditioner / (CLIP_NORM * claim.unit))


def release_traces(pair: Pair, claim: Claim, *, has_canary: bool, runs: int, seed: int | None) -> Array:
    """Return the same from `runs` calls of `nadpvi.release`, which share nothing with each other."""
    table = pair.table(claim, has_canary=has_canary)

    def trace(index: int) -> Array:
        made = na.release(
            MODEL,
            table,
            schema=claim.schema,
            privacy=claim.budget,
            config=claim.config,
            insecure_seed=None if seed is None else seed + index,
        )
        assert made.is_private == (seed is None)
        assert made.guarantee is not None
        assert made.guarantee.epsilon <= claim.epsilon
        assert made.guarantee.delta == claim.delta
        scaled: Array = made.noisy_gradient * (made.preconditioner / (made.clip_norm * claim.unit))
        return scaled

    first = trace(0)
    # Nine tenths of a small release's time: the dry run of the model on made-up records, and the versions of
    # packages. Neither sees a record, and both are the same in every run.
    versions = functools.cache(package_versions)
    with (
        patch("nadpvi.private.curator.check_model", lambda description, num_draws: None),
        patch("nadpvi.mechanism.package_versions", versions),
    ):
        return np.array([first, *(trace(index) for index in range(1, runs))])


def statistics(traces: Array, claim: Claim, *, centre: float) -> dict[str, Array]:
    """Return what an auditor measures on each trace, each of shape (runs,).

    `centre` is the usual projection of a step without the canary: what the other records add up to.
    """
    s = traces[:, :, :2] @ DIRECTION - centre
    measured = {
        "sum of projections": s.sum(axis=1),
        "largest projection": s.max(axis=1),
        "smallest projection": s.min(axis=1),
        "range over steps": s.max(axis=1) - s.min(axis=1),
        "mean square": (traces**2).mean(axis=(1, 2)),
        "mean square across": (traces[:, :, 2:] ** 2).mean(axis=(1, 2)),
    }
    sigma, usual = claim.sigma, 2.0 if claim.relation == "replace_one" else 1.0
    for rate in sorted({claim.sampling_rate, 1.0}):
        for noise in (1.0, 0.5):
            for shift in (usual, 2.0 * usual):
                name = f"likelihood ratio: rate {rate:g}, noise {noise:g} sigma, shift {shift:g}"
                measured[name] = _log_ratio(s, rate=rate, sigma=noise * sigma, shift=shift, claim=claim)
    return measured


def _log_ratio(s: Array, *, rate: float, sigma: float, shift: float, claim: Claim) -> Array:
    """Return the log likelihood ratio of the canary's presence, summed over steps, shape (runs,)."""
    rare = np.log1p(-rate) if rate < 1.0 else -np.inf
    half = shift / 2.0 if claim.relation == "replace_one" else shift

    def mixture(at: float) -> Array:
        entered: Array = np.logaddexp(rare, np.log(rate) + (at * s - 0.5 * at**2) / sigma**2)
        return entered

    present = mixture(half)
    if claim.relation == "replace_one":
        present = present - mixture(-half)
    total: Array = present.sum(axis=1)
    return total


def audit(
    pair: Pair,
    claim: Claim,
    *,
    runs: int,
    miss_probability: float,
    seed: int | None = None,
    through_release: bool = False,
) -> Bound:
    """Return a lower bound on the epsilon of the code as it is now, from `runs` runs on each data set."""
    make: Callable[..., Array] = release_traces if through_release else engine_traces
    present = make(pair, claim, has_canary=True, runs=runs, seed=seed)
    absent = make(pair, claim, has_canary=False, runs=runs, seed=None if seed is None else seed + 1_000_000)
    # The auditor knows the other records, so this is no secret; it is read off the runs that choose.
    centre = (
        0.0 if pair.others == "silent" else float(np.median(absent[: num_train(runs), :, :2] @ DIRECTION))
    )
    return lower_bound(
        statistics(present, claim, centre=centre),
        statistics(absent, claim, centre=centre),
        delta=claim.delta,
        miss_probability=miss_probability,
    )
