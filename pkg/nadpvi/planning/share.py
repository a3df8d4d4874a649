"""Whether a run shall spend a share of its budget on its curvature."""

import math

import numpy as np

from nadpvi.curvature_share import num_coefficients
from nadpvi.description import ModelDescription
from nadpvi.gradient_model.dense.known import MAX_SIZE
from nadpvi.guides import MeanField
from nadpvi.made_up import Covariates, made_up_records
from nadpvi.models.base import CurvatureModel
from nadpvi.privacy.budget import NonPrivate, PrivacyBudget
from nadpvi.terms import outer_product_norm

__all__ = ["choose_curvature_share"]

_CURVATURE_SHARE = 0.2
_MOST_LENGTH = 5.0  # of a record's outer product, in root mean squares
_MEASURED_RECORDS = 1000


def choose_curvature_share(
    description: ModelDescription, privacy: PrivacyBudget | NonPrivate, *, covariates: Covariates | None
) -> float:
    """Return the share of the budget for a curvature: a fifth where one can be released and read, else 0.

    Its noise grows with the longest record that the schema allows. Where that is far longer than what records
    are expected to be, the noise hides the matrix, and the budget is better spent on the trace.

    Parameters
    ----------
    description : ModelDescription
    privacy : PrivacyBudget or NonPrivate
    covariates : DataFrame or callable, optional
        Where predictors come from, as in `nadpvi.made_up.made_up_records`.
    """
    suits = (
        isinstance(privacy, PrivacyBudget)
        and isinstance(description.model, CurvatureModel)
        and isinstance(description.guide, MeanField)
        and 2 <= num_coefficients(description) <= MAX_SIZE
    )
    if not suits:
        return 0.0
    mean, _ = description.model.prior_moments(description.design)
    x = made_up_records(
        description.model,
        description.design,
        theta=mean,
        num_records=_MEASURED_RECORDS,
        rng=np.random.default_rng(0),
        covariates=covariates,
    ).x
    lengths = outer_product_norm((x**2).sum(axis=1), (x**4).sum(axis=1))
    typical = math.sqrt(float((lengths**2).mean()))
    is_told = description.design.outer_product_bound <= _MOST_LENGTH * typical
    return _CURVATURE_SHARE if is_told else 0.0
