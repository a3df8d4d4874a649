"""Summaries of draws, and what chains say about themselves."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from nadpvi.arviz_bridge import convergence, has_arviz
from nadpvi.checks import check_probability
from nadpvi.diagnostics.findings import Finding, make_finding, warn_of

__all__ = [
    "MAX_TREEDEPTH",
    "approximation_finding",
    "chain_findings",
    "num_divergences",
    "summarise",
    "tau_finding",
    "warn_of_disagreement",
]

# Thresholds of Vehtari et al. (2021), Rank-normalization, folding, and localization, section 4.
_MAX_R_HAT = 1.01
_MIN_ESS_PER_CHAIN = 100
# Betancourt (2016), Diagnosing suboptimal cotangent disintegrations in Hamiltonian Monte Carlo; Stan's own.
_MIN_E_BFMI = 0.3
MAX_TREEDEPTH = 10
# Measured: from this sd on, the log-normal's mean or sd of tau is off by a quarter or more.
_MAX_LOG_TAU_SD = 0.25
# Of Laplace's Gaussian about phi_star: how far its sd may be off, as a share, and its mean, in posterior sds.
_SD_TOLERANCE, _MEAN_TOLERANCE = 0.1, 0.1
_LEAST_CHAINS, _LEAST_DRAWS = 2, 4


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
        Variables with dims (chain, draw, ...).
    names : sequence of str
        Which of them to check.

    Warns
    -----
    SamplerWarning
        If R-hat is above 1.01, or bulk or tail ESS below 100 a chain, for any entry.
    """
    warn_of(chain_findings(posterior, names=names, sample_stats=None), stacklevel=2)


def chain_findings(
    posterior: xr.Dataset,
    *,
    names: Sequence[str],
    sample_stats: xr.Dataset | None,
    max_treedepth: int = MAX_TREEDEPTH,
) -> list[Finding]:
    """Return what chains say about themselves: divergences, tree depth, energy, R-hat and ESS.

    Parameters
    ----------
    posterior : xarray.Dataset
        Variables with dims (chain, draw, ...).
    names : sequence of str
        Which of them to check: phi_star and the like, whether or not a summary shows them.
    sample_stats : xarray.Dataset or None
        The sampler's statistics under ArviZ's names.
    max_treedepth : int
        The limit that the sampler ran with; Stan's own when omitted.
    """
    found = [] if sample_stats is None else _sampler_findings(sample_stats, max_treedepth)
    num_chains, num_draws = posterior.sizes["chain"], posterior.sizes["draw"]
    if num_chains < _LEAST_CHAINS or num_draws < _LEAST_DRAWS:
        message = f"{num_chains} chain(s) of {num_draws} draws cannot show whether sampling converged"
        return [
            *found,
            _whole("chains", num_chains, _LEAST_CHAINS, message, "use at least 2 chains, better 4"),
        ]
    if not has_arviz():
        message = "nothing was checked about convergence, since ArviZ is not installed"
        return [*found, _whole("chains", num_chains, _LEAST_CHAINS, message, "pip install arviz")]
    measures = convergence(posterior[list(names)])
    labels = [label for name in names for label in _entry_labels(posterior[name])]
    r_hat, bulk, tail = (
        np.concatenate([measures[key][name].to_numpy().ravel() for name in names])
        for key in ("r_hat", "ess_bulk", "ess_tail")
    )
    # An entry that never moves has no R-hat; that is a failure, not a pass.
    worst_r_hat = np.nan_to_num(r_hat, nan=np.inf)
    needed = float(_MIN_ESS_PER_CHAIN * num_chains)
    ess = np.fmin(bulk, tail)
    return found + [
        finding
        for finding in (
            make_finding(
                "r_hat",
                severity="warning",
                labels=labels,
                is_bad=worst_r_hat > _MAX_R_HAT,
                badness=worst_r_hat,
                value=worst_r_hat,
                threshold=_MAX_R_HAT,
                message="chains disagree: R-hat is {value} where {threshold} is the limit, in {who}"
                + (" (inf: it never moved)" if np.isnan(r_hat).any() else ""),
                remedy="raise warmup",
            ),
            make_finding(
                "effective_draws",
                severity="warning",
                labels=labels,
                is_bad=ess < needed,
                badness=-np.nan_to_num(ess, nan=np.inf),
                value=ess,
                threshold=needed,
                message="too few effective draws: {value} where {threshold} are needed, in {who}",
                remedy="raise draws",
            ),
        )
        if finding is not None
    ]


def tau_finding(tau: NDArray[np.float64], *, labels: Sequence[str]) -> Finding | None:
    """Return the caution that Laplace's method misses tau near 0, if it does.

    Parameters
    ----------
    tau : ndarray, shape (chain, draw, D)
        Draws by Laplace's method, whose logarithm is normal.
    labels : sequence of str
        Names of the D coordinates.
    """
    spread = np.log(tau).reshape(-1, tau.shape[-1]).std(axis=0)
    return make_finding(
        "laplace_tau",
        severity="note",
        labels=labels,
        is_bad=spread > _MAX_LOG_TAU_SD,
        badness=spread,
        value=spread,
        threshold=_MAX_LOG_TAU_SD,
        message="a Gaussian is a poor picture of log tau near tau = 0, and tau itself off by a quarter or "
        "more, in {who}: log tau has sd {value} where {threshold} is the limit",
        remedy="use method='exact' for tau itself",
    )


def approximation_finding(
    *,
    mean: NDArray[np.float64],
    sd: NDArray[np.float64],
    exact_mean: NDArray[np.float64],
    exact_sd: NDArray[np.float64],
    labels: Sequence[str],
) -> Finding | None:
    """Return the caution that Laplace's method misses phi_star's posterior, if it does.

    Parameters
    ----------
    mean, sd : ndarray, shape (D,)
        Of the Gaussian at the mode.
    exact_mean, exact_sd : ndarray, shape (D,)
        Of the posterior itself; NaN where they are not known, which is found as well.
    labels : sequence of str
        Names of the D coordinates.
    """
    ratio, gap = sd / exact_sd, np.abs(mean - exact_mean) / exact_sd
    # on one scale, 1 where either limit is reached
    badness = np.maximum(np.abs(ratio - 1.0) / _SD_TOLERANCE, gap / _MEAN_TOLERANCE)
    is_bad = ~(badness <= 1.0)
    worst = int(np.argmax(np.nan_to_num(badness, nan=np.inf)))
    return make_finding(
        "laplace_phi_star",
        severity="warning",
        labels=labels,
        is_bad=is_bad,
        badness=np.nan_to_num(badness, nan=np.inf),
        value=ratio,
        threshold=1.0 - _SD_TOLERANCE,
        message="a Gaussian at the mode is a poor picture of phi_star in {who}: "
        + (
            "the posterior itself could not be integrated to compare it with"
            if np.isnan(ratio[worst])
            else f"its sd is {{value}} times that of the posterior, where {1 - _SD_TOLERANCE:g} to "
            f"{1 + _SD_TOLERANCE:g} is allowed, and its mean {gap[worst]:.2g} sds away, where "
            f"{_MEAN_TOLERANCE:g} is"
        ),
        remedy="use method='exact'",
    )


def _sampler_findings(stats: xr.Dataset, max_treedepth: int) -> list[Finding]:
    """Return what the sampler's statistics say."""
    found = []
    diverged = num_divergences(stats)
    if diverged:
        # Only NUTS has trees, and an adapt_delta.
        kind, remedy = ("NUTS ", "raise adapt_delta") if "tree_depth" in stats else ("", "raise warmup")
        message = (
            f"{diverged} of {stats['diverging'].size} {kind}transitions diverged, so parts may be missing"
        )
        found.append(_whole("divergences", diverged, 0, message, remedy))
    if "tree_depth" in stats:
        deep = int((stats["tree_depth"].to_numpy() >= max_treedepth).sum())
        if deep:
            message = f"{deep} NUTS transitions reached the tree depth limit of {max_treedepth}"
            found.append(_whole("tree_depth", deep, 0, message, "raise warmup"))
    if "energy" in stats and stats.sizes["draw"] >= _LEAST_DRAWS:
        energy = stats["energy"].transpose("chain", "draw").to_numpy()
        spread = energy.var(axis=1)
        moves = np.square(np.diff(energy, axis=1)).mean(axis=1)
        least = float(np.divide(moves, spread, out=np.zeros_like(spread), where=spread > 0).min())
        if least < _MIN_E_BFMI:
            message = (
                f"a chain explores energies slowly: E-BFMI is {least:.2g} where {_MIN_E_BFMI} is the limit"
            )
            found.append(_whole("energy", least, _MIN_E_BFMI, message, "raise warmup and draws"))
    return found


def _whole(check: str, value: float, threshold: float, message: str, remedy: str) -> Finding:
    """Return a finding about all coordinates at once."""
    return Finding(
        check=check,
        severity="warning",
        coordinates=(),
        num_coordinates=0,
        value=float(value),
        threshold=float(threshold),
        message=message,
        remedy=remedy,
    )


def _entry_labels(variable: xr.DataArray) -> list[str]:
    """Return a label for each entry of a variable, last axis fastest."""
    dims = variable.dims[2:]
    if not dims:
        return [str(variable.name)]
    coords = [
        variable[dim].to_numpy() if dim in variable.coords else range(variable.sizes[dim]) for dim in dims
    ]
    return [f"{variable.name}[{', '.join(map(str, entry))}]" for entry in itertools.product(*coords)]
