"""Scores where nobody knows the truth: predictions on genuine test rows, and the distance to the limit."""

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.baselines import non_private_posterior
from nadpvi.datasets import adult_schema, load_adult
from nadpvi.encoding import encode_features, encode_outcome
from nadpvi.experiments.blocks import Block
from nadpvi.experiments.sources import make_setting, simulate
from nadpvi.scores import ScoredRows, calibration_curve, score_binary

__all__ = ["NUM_BINS", "Limit", "score_predictions"]

Array = NDArray[np.float64]

NUM_BINS = 10
_ROWS_AT_ONCE = 2000


class Limit(NamedTuple):
    """Posterior mean and sd of each coefficient given the records themselves, shape (K,)."""

    mean: Array
    sd: Array


@functools.cache
def _limit() -> Limit:
    """Return the non-private posterior of UCI Adult."""
    setting = make_setting({"kind": "adult"})
    records = simulate(setting, [0])[0].records
    theta = non_private_posterior(setting.model, records, schema=setting.schema, draws=20_000, seed=0).theta()
    return Limit(theta.mean(axis=(0, 1)), theta.std(axis=(0, 1)))


@functools.cache
def _test_rows() -> tuple[Array, Array]:
    """Return features and outcomes of the test rows."""
    design = make_setting({"kind": "adult"}).model.design(adult_schema())
    table = load_adult("test")
    return encode_features(design, table).x, encode_outcome(design, table).y


def score_predictions(draws: Array, block: Block) -> dict[str, Array]:
    """Return scores of the posterior predictive on the test rows (Eq. 16), one row a replicate.

    Parameters
    ----------
    draws : ndarray, shape (R, S, K)
        Posterior draws of the coefficients.
    block : Block
        Of the source "adult".

    Returns
    -------
    dict
        ``accuracy, log_score, brier, calibration_error`` (R,) as in `nadpvi.scores.BinaryScores`;
        ``bin_share, bin_mean, bin_rate`` (R, 10), the calibration curve, NaN in an empty bin; ``mean, sd``
        (R, K); ``z_dp`` (R,), the root mean square over coefficients of (mean - non-private mean) /
        sqrt(sd^2 - non-private sd^2), over those whose sd is above the non-private one, and ``sd_above``
        (R,), the share of those.
    """
    x, y = _test_rows()
    limit = _limit()
    rows = []
    for theta in draws:
        chance = np.concatenate(
            [
                block.setting.model.predict_mean(theta, x[start : start + _ROWS_AT_ONCE]).mean(axis=0)
                for start in range(0, len(x), _ROWS_AT_ONCE)
            ]
        )
        scored = ScoredRows(chance, y)
        row = {name: np.asarray(value) for name, value in score_binary(scored)._asdict().items()}
        rows.append({**row, **_curve(scored), **_distance(theta, limit)})
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _curve(scored: ScoredRows) -> dict[str, Array]:
    """Return the calibration curve with NaN in empty bins."""
    parts = np.full((3, NUM_BINS), np.nan)
    parts[0] = 0.0
    bins = np.clip((scored.predicted * NUM_BINS).astype(int), 0, NUM_BINS - 1)
    parts[:, np.unique(bins)] = calibration_curve(scored, num_bins=NUM_BINS)
    return dict(zip(("bin_share", "bin_mean", "bin_rate"), parts, strict=True))


def _distance(theta: Array, limit: Limit) -> dict[str, Array]:
    """Return the distance to the non-private posterior in units of the sd that privacy adds."""
    mean, sd = theta.mean(axis=0), theta.std(axis=0)
    added = np.square(sd) - np.square(limit.sd)
    is_above = added > 0
    square = np.square(mean - limit.mean)[is_above] / added[is_above]
    return {
        "mean": mean,
        "sd": sd,
        "z_dp": np.sqrt(square.mean()) if is_above.any() else np.asarray(np.nan),
        "sd_above": np.asarray(is_above.mean()),
    }
