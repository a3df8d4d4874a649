"""How much of a parameter's uncertainty is the data's, and how much came with the privacy.

The noise-aware posterior is a mixture (Eq. 21): for each draw of the optimum phi_star, theta is normal about
its location mu* with its scale s*. By the law of total variance, on the unconstrained scale,

    var(theta) = E[s*^2] + var(mu*)

The first part is what the variational posterior would say of theta if its optimum were known: what finite
data leave open. The second is how far the optimum itself is known: the noise that privacy needs, and what
else hides the optimum in the trace (subsampling, few steps, an uncertain curvature). Where noise drowns a
coordinate it is the prior of phi_star that is left, and its variance is in the second part.

It is a split of this posterior's variance, not of its cause: how narrow the intervals would be without noise
is for `nadpvi.plan` to say. A mean-field guide understates the first part of parameters that depend on each
other. Where the dense method draws theta about its optimum by the curvature's matrix, the first part is what
those draws add to var(mu*).
"""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from nadpvi.errors import ArgumentError
from nadpvi.guides.base import Guide

__all__ = ["uncertainty_shares"]

Array = NDArray[np.float64]


def uncertainty_shares(
    guide: Guide, phi_star: ArrayLike, *, labels: tuple[str, ...], theta: ArrayLike | None = None
) -> pd.DataFrame:
    """Return each unconstrained parameter's variance, split by the law of total variance.

    Parameters
    ----------
    guide : Guide
        The variational family; mean-field or with correlations.
    phi_star : array_like, shape (..., D)
        Draws of the optimum, at least two.
    labels : tuple of str
        Names of the K unconstrained parameters.
    theta : array_like, shape (..., K), optional
        Their draws, where these are spread about mu* otherwise than by the guide; independently of mu*.

    Returns
    -------
    DataFrame
        Index: labels. Columns: ``sd``, the standard deviation of theta; ``sd_data`` = sqrt(E[s*^2]) and
        ``sd_privacy`` = sqrt(var(mu*)), whose squares sum to that of ``sd``; ``share_data`` and
        ``share_privacy``, which sum to 1.

    Raises
    ------
    ArgumentError
        If there are fewer than two draws, or phi_star is not the guide's.

    Examples
    --------
    >>> from nadpvi.guides import MeanField
    >>> phi_star = np.array([[0.0, 0.5413], [2.0, 0.5413]])  # softplus(0.5413) is 1
    >>> uncertainty_shares(MeanField(), phi_star, labels=("a",)).round(2).iloc[0].to_dict()
    {'sd': 1.73, 'sd_data': 1.0, 'sd_privacy': 1.41, 'share_data': 0.33, 'share_privacy': 0.67}
    """
    given = np.asarray(phi_star, dtype=np.float64)
    draws = given.reshape(-1, given.shape[-1])
    size = len(labels)
    if draws.shape[1] != guide.num_variational(size):
        raise ArgumentError(
            f"phi_star must have {guide.num_variational(size)} coordinates for {size} parameters "
            f"(got {draws.shape[1]})."
        )
    if len(draws) < 2:
        raise ArgumentError("one draw has no variance; shares of uncertainty need at least two.")
    of_privacy = draws[:, :size].var(axis=0, ddof=1)
    if theta is None:
        of_data = np.square(guide.standard_deviation(draws)).mean(axis=0)
    else:
        away = np.asarray(theta, dtype=np.float64).reshape(-1, size) - draws[:, :size]
        of_data = np.square(away).mean(axis=0)
    total = of_data + of_privacy
    columns = {
        "sd": np.sqrt(total),
        "sd_data": np.sqrt(of_data),
        "sd_privacy": np.sqrt(of_privacy),
        "share_data": of_data / total,
        "share_privacy": of_privacy / total,
    }
    return pd.DataFrame(columns, index=pd.Index(labels, name="parameter"))
