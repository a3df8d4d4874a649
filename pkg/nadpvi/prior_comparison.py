"""Prior against posterior, parameter by parameter: what was learned through the noise."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nadpvi.description import ModelDescription

__all__ = ["prior_against_posterior"]

Array = NDArray[np.float64]


def prior_against_posterior(description: ModelDescription, theta: Array) -> pd.DataFrame:
    """Return mean and sd of prior and posterior of each unconstrained parameter.

    Parameters
    ----------
    description : ModelDescription
    theta : ndarray, shape (..., K)
        Draws of the unconstrained parameters.

    Returns
    -------
    DataFrame
        Index: labels of unconstrained parameters. Columns: ``prior_mean``, ``prior_sd``,
        ``posterior_mean``, ``posterior_sd``, and ``learned`` = 1 - posterior variance / prior variance: 1
        where all was learned, 0 (or below) where nothing was.
    """
    prior_mean, prior_sd = description.model.prior_moments(description.design)
    draws = theta.reshape(-1, theta.shape[-1])
    posterior_sd = draws.std(axis=0, ddof=1) if len(draws) > 1 else np.full(draws.shape[1], np.nan)
    columns = {
        "prior_mean": prior_mean,
        "prior_sd": prior_sd,
        "posterior_mean": draws.mean(axis=0),
        "posterior_sd": posterior_sd,
        "learned": 1.0 - np.square(posterior_sd / prior_sd),
    }
    return pd.DataFrame(columns, index=pd.Index(description.names, name="parameter"))
