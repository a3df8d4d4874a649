"""Summaries and verdicts about draws."""

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import xarray as xr

from nadpvi.arviz_bridge import convergence
from nadpvi.checks import check_probability
from nadpvi.errors import InferenceWarning

__all__ = ["num_divergences", "summarise", "warn_of_disagreement"]

# Thresholds of Vehtari et al. (2021), Rank-normalization, folding, and localization, section 4.
_MAX_R_HAT = 1.01
_MIN_ESS_PER_CHAIN = 100


def summarise(
    posterior: xr.Dataset, *, labels: Mapping[str, Sequence[str]], probability: float = 0.9
) -> pd.DataFrame:
    """Return one row for each entry of the named variables.

    Parameters
    ----------
    posterior : xarray.Dataset
        Variables with dims (chain, draw, ...).
    labels : mapping
        Which of them to show, and how their entries are called, last axis fastest.
    probability : float
        Content of the equal-tailed interval, in (0, 1).

    Returns
    -------
    DataFrame
        Index: labels. Columns: ``mean``, ``sd``, the interval's two quantiles named by their percentage
        (``5%``, ``95%``), ``ess_bulk``, ``ess_tail``, ``r_hat``.
    """
    level = check_probability("probability", probability)
    selected = posterior[list(labels)]
    chains = convergence(selected)
    low, high = (1.0 - level) / 2.0, (1.0 + level) / 2.0
    tables = []
    for name, entries in labels.items():
        flat = selected[name].to_numpy().reshape(-1, len(entries))
        quantiles = np.quantile(flat, [low, high], axis=0)
        columns = {
            "mean": flat.mean(axis=0),
            "sd": flat.std(axis=0, ddof=1) if len(flat) > 1 else np.full(flat.shape[1], np.nan),
            f"{100 * low:g}%": quantiles[0],
            f"{100 * high:g}%": quantiles[1],
        }
        columns |= {key: chains[key][name].to_numpy().ravel() for key in chains}
        tables.append(pd.DataFrame(columns, index=pd.Index(list(entries), name="parameter")))
    return pd.concat(tables)


def num_divergences(sample_stats: xr.Dataset | None) -> int | None:
    """Return how many draws ended in a divergent transition, or None where the method has no chains."""
    if sample_stats is None or "diverging" not in sample_stats:
        return None
    return int(sample_stats["diverging"].to_numpy().sum())


def warn_of_disagreement(posterior: xr.Dataset, *, names: Sequence[str]) -> None:
    """Warn where chains disagree or hold too few effective draws (Vehtari et al. 2021).

    Parameters
    ----------
    posterior : xarray.Dataset
        Variables with dims (chain, draw, one more).
    names : sequence of str
        Which of them to check.

    Warns
    -----
    InferenceWarning
        If R-hat is above 1.01, or bulk or tail ESS below 100 a chain, for any coordinate.
    """
    sizes = posterior.sizes
    if sizes["chain"] < 2 or sizes["draw"] < 4:
        warnings.warn(
            f"{sizes['chain']} chain(s) of {sizes['draw']} draws cannot show whether sampling converged; use "
            "at least 2 chains, better 4.",
            InferenceWarning,
            stacklevel=3,
        )
        return
    chains = convergence(posterior[list(names)])
    # A coordinate that never moves has no R-hat; that is a failure, not a pass.
    r_hat = np.concatenate([chains["r_hat"][name].to_numpy().ravel() for name in names])
    ess = np.concatenate(
        [chains[k][name].to_numpy().ravel() for k in ("ess_bulk", "ess_tail") for name in names]
    )
    stuck = int(np.isnan(r_hat).sum())
    needed = _MIN_ESS_PER_CHAIN * sizes["chain"]
    if stuck:
        warnings.warn(f"{stuck} coordinates never moved; raise warmup.", InferenceWarning, stacklevel=3)
    worst = np.nanmax(r_hat, initial=0.0)
    if worst > _MAX_R_HAT:
        warnings.warn(
            f"chains disagree: R-hat is {worst:.3f} where {_MAX_R_HAT} is the limit; raise warmup.",
            InferenceWarning,
            stacklevel=3,
        )
    if np.nanmin(ess, initial=np.inf) < needed:
        warnings.warn(
            f"too few effective draws: {np.nanmin(ess):.0f} where {needed} are needed; raise draws.",
            InferenceWarning,
            stacklevel=3,
        )
