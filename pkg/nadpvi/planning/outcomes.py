"""Whether the outcomes that a prior expects are those that the schema allows. Public side; reads no table."""

import numpy as np

from nadpvi.description import ModelDescription
from nadpvi.made_up import made_up_records, prior_draws
from nadpvi.models.base import SimulatingModel

__all__ = ["outcome_warnings"]

_TABLES, _RECORDS = 100, 100
_TAIL = 0.005
_NARROW_SHARE = 0.05  # of the bounds' width
_OUTSIDE_SHARE = 0.1  # of made-up outcomes


def outcome_warnings(description: ModelDescription, *, rng: np.random.Generator) -> list[str]:
    """Return a line where prior and bounds of a numeric outcome do not fit each other.

    A prior for outcomes near 0, as the defaults are, and an outcome from 0 to 100 let a run drift for all of
    its steps; a prior far wider than the bounds asks for a clip norm that no record needs.

    Parameters
    ----------
    description : ModelDescription
        With an outcome.
    rng : numpy.random.Generator
        Of the made-up records.
    """
    model, design = description.model, description.design
    if not isinstance(model, SimulatingModel) or design.outcome_kind not in ("real", "count"):
        return []
    drawn = [
        made_up_records(model, design, theta=theta, num_records=_RECORDS, rng=rng, clamp=False).y
        for theta in prior_draws(model, design, num_draws=_TABLES, rng=rng)
    ]
    y = np.concatenate(drawn)
    lower, upper = design.outcome_bounds
    low, high = np.quantile(y, [_TAIL, 1.0 - _TAIL])
    outside = float(((y < lower) | (y > upper)).mean())
    allowed, expected = f"{lower:g} to {upper:g}", f"between {low:.3g} and {high:.3g}"
    if outside > _OUTSIDE_SHARE:
        return [
            f"{outside:.0%} of the outcomes that the prior expects lie beyond their bounds {allowed}; 99 % "
            f"lie {expected}. Choose the model's priors for what can happen, in the outcome's own unit."
        ]
    if design.outcome_kind == "real" and high - low < _NARROW_SHARE * (upper - lower):
        return [
            f"the prior expects outcomes {expected}, where the schema allows {allowed}. If they are in "
            "another unit than the prior, choose the model's priors for theirs."
        ]
    return []
