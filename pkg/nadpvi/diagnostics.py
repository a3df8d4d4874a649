"""Summaries and verdicts about draws."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr

from nadpvi.arviz_bridge import convergence
from nadpvi.checks import check_probability

__all__ = ["num_divergences", "summarise"]


def summarise(posterior: xr.Dataset, *, names: Sequence[str], probability: float = 0.9) -> pd.DataFrame:
    """Return one row for each coordinate of the named variables.

    Parameters
    ----------
    posterior : xarray.Dataset
        Variables with dims (chain, draw, one more).
    names : sequence of str
        Which of them to show.
    probability : float
        Content of the equal-tailed interval, in (0, 1).

    Returns
    -------
    DataFrame
        Index: coordinate labels. Columns: ``mean``, ``sd``, the interval's two quantiles named by their
        percentage (``5%``, ``95%``), ``ess_bulk``, ``ess_tail``, ``r_hat``.
    """
    level = check_probability("probability", probability)
    selected = posterior[list(names)]
    chains = convergence(selected)
    tables = []
    for name in names:
        values = selected[name].to_numpy()
        flat = values.reshape(-1, values.shape[-1])
        low, high = (1.0 - level) / 2.0, (1.0 + level) / 2.0
        quantiles = np.quantile(flat, [low, high], axis=0)
        columns = {
            "mean": flat.mean(axis=0),
            "sd": flat.std(axis=0, ddof=1) if len(flat) > 1 else np.full(flat.shape[1], np.nan),
            f"{100 * low:g}%": quantiles[0],
            f"{100 * high:g}%": quantiles[1],
        }
        columns |= {key: np.atleast_1d(chains[key][name].to_numpy()) for key in chains}
        labels = [str(label) for label in selected[name].coords[selected[name].dims[2]].to_numpy()]
        tables.append(pd.DataFrame(columns, index=pd.Index(labels, name="parameter")))
    return pd.concat(tables)


def num_divergences(sample_stats: xr.Dataset | None) -> int | None:
    """Return how many draws ended in a divergent transition, or None where the method has no chains."""
    if sample_stats is None or "diverging" not in sample_stats:
        return None
    return int(sample_stats["diverging"].to_numpy().sum())
