"""The coverage test: whether expected coverage leaves the diagonal further than chance takes it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nadpvi.checks import check_count
from nadpvi.coverage.null import curve_counts, p_value, uniform_null
from nadpvi.errors import ArgumentError
from nadpvi.privacy.randomness import check_seed

__all__ = [
    "MIN_REPLICATES",
    "CoverageTest",
    "check_replicates",
    "coverage_curve",
    "coverage_rmse",
    "coverage_rmse_bound",
    "coverage_test",
]

Array = NDArray[np.float64]

MIN_REPLICATES = 10
_FEW_REPLICATES = 100
_NUM_BOOTSTRAPS = 200
_LEVEL = 0.05
_MOST_CURVES = 400  # of which each is tested at a level of 0.05 / 400, 1.2 in 9,999 simulations


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoverageTest:
    """Expected coverage of a method over R replicates and F reference points.

    Attributes
    ----------
    alphas : ndarray, shape (A,)
        One minus the credible level.
    coverage : ndarray, shape (A,)
        C(alpha), mean over reference points; 1 - alpha for a perfect posterior.
    coverage_sd : ndarray, shape (A,)
        Its standard deviation over bootstrapped replicates.
    band : ndarray, shape (2, A)
        Edges within which 95 % of the curves of one reference point and a perfect posterior stay whole.
    rmse : float
        Eq. (15), mean over reference points.
    rmse_per_reference : ndarray, shape (F,)
        Eq. (15) of each reference point; their spread is the published error estimate.
    rmse_sd : float
        Standard deviation of `rmse` with replicates and reference points both bootstrapped.
    null_mean, null_bound_95 : float
        Mean and 95 % point of eq. (15) for a perfect posterior, this R, this grid and one reference point.
    p_value : float
        (r + 1) / (n + 1), where r of n perfect experiments with one reference point have at least this RMSE.
        A mean over several varies less than one of them, so that the test errs towards not rejecting.
    num_replicates, num_references : int
        R and F.
    notes : tuple of str
        What a reader must know of the test's reach.
    """

    alphas: Array
    coverage: Array
    coverage_sd: Array
    band: Array
    rmse: float
    rmse_per_reference: Array
    rmse_sd: float
    null_mean: float
    null_bound_95: float
    p_value: float
    num_replicates: int
    num_references: int
    notes: tuple[str, ...] = ()

    @property
    def is_rejected(self) -> bool:
        """Whether a perfect posterior would do this badly in at most 5 % of experiments."""
        return self.p_value <= _LEVEL


def coverage_test(ranks: ArrayLike, *, seed: int, num_alphas: int = 99) -> CoverageTest:
    """Return the coverage curve of TARP ranks, its error, and how likely a perfect posterior errs as much.

    C(alpha) is the share of replicates whose rank is below 1 - alpha (13.4 of the paper).

    Parameters
    ----------
    ranks : ndarray, shape (R, F) or (R,)
        TARP ranks in [0, 1] of R >= 10 replicates and F reference points, ``joint`` of `score_draws` or one
        parameter of ``marginal``.
    seed : int
        Of the bootstrap. The null is simulated with numbers of its own, the same in every run.
    num_alphas : int
        Size A of the grid i / (A + 1).

    Raises
    ------
    ArgumentError
        If there are fewer than 10 replicates, or ranks are not in [0, 1].

    Examples
    --------
    >>> ranks = np.random.default_rng(1).random((500, 1))
    >>> found = coverage_test(ranks, seed=1)
    >>> found.is_rejected, round(found.null_mean, 4), round(found.null_bound_95, 3)
    (False, 0.0171, 0.031)
    """
    values = _check_ranks(ranks)
    num_replicates, num_references = values.shape
    null = uniform_null(num_replicates, check_count("num_alphas", num_alphas))
    curves = _curves(values, null.levels)
    alphas = null.levels
    errors = _rmse(curves, null.levels[::-1])
    rmse = float(errors.mean())
    coverage_sd, rmse_sd = _bootstrap(values, null.levels, seed=check_seed("seed", seed))
    return CoverageTest(
        alphas=alphas,
        coverage=curves.mean(axis=0),
        coverage_sd=coverage_sd[::-1],
        band=null.band[:, ::-1],
        rmse=rmse,
        rmse_per_reference=errors,
        rmse_sd=rmse_sd,
        null_mean=float(null.rmse.mean()),
        null_bound_95=float(np.quantile(null.rmse, 0.95)),
        p_value=p_value(null.rmse, rmse, large_is_extreme=True),
        num_replicates=num_replicates,
        num_references=num_references,
        notes=_notes(num_replicates),
    )


def coverage_rmse(ranks: ArrayLike, *, num_alphas: int = 99) -> float:
    """Return eq. (15) alone, the `rmse` of `coverage_test`, without its bootstrap.

    Parameters
    ----------
    ranks, num_alphas
        As there.

    Raises
    ------
    ArgumentError
        As there.

    Examples
    --------
    >>> ranks = np.random.default_rng(1).random((500, 3))
    >>> coverage_rmse(ranks) == coverage_test(ranks, seed=1).rmse
    True
    """
    values = _check_ranks(ranks)
    levels = uniform_null(len(values), check_count("num_alphas", num_alphas)).levels
    return float(_rmse(_curves(values, levels), levels[::-1]).mean())


def coverage_rmse_bound(num_replicates: int, *, num_curves: int = 1, num_alphas: int = 99) -> float:
    """Return what the largest `coverage_rmse` of several parameters is at most in 95 % of experiments.

    For perfect posteriors, and by Bonferroni's inequality, so that parameters need not be independent.

    Parameters
    ----------
    num_replicates : int
        R >= 10.
    num_curves : int
        Number of parameters, from 1 to 400: the null's 9,999 simulations say nothing of rarer errors.
    num_alphas : int
        As for `coverage_test`.

    Raises
    ------
    ArgumentError
        If a number is out of range.

    Examples
    --------
    >>> round(coverage_rmse_bound(500), 3), round(coverage_rmse_bound(500, num_curves=12), 3)
    (0.031, 0.043)
    """
    if check_count("num_replicates", num_replicates) < MIN_REPLICATES:
        raise ArgumentError(f"num_replicates must be at least {MIN_REPLICATES} (got {num_replicates}).")
    null = uniform_null(num_replicates, check_count("num_alphas", num_alphas))
    if check_count("num_curves", num_curves) > _MOST_CURVES:
        raise ArgumentError(f"num_curves must be at most {_MOST_CURVES} (got {num_curves}).")
    return float(np.quantile(null.rmse, 1.0 - _LEVEL / num_curves))


def coverage_curve(ranks: ArrayLike, *, num_alphas: int = 99) -> Array:
    """Return C(alpha) alone, the `coverage` of `coverage_test`, without its bootstrap.

    Parameters
    ----------
    ranks, num_alphas
        As there.

    Returns
    -------
    ndarray, shape (A,)
        At alpha = i / (A + 1), i = 1, ..., A; a perfect posterior's is 1 - alpha on average.

    Raises
    ------
    ArgumentError
        As there.
    """
    values = _check_ranks(ranks)
    levels = uniform_null(len(values), check_count("num_alphas", num_alphas)).levels
    curve: Array = _curves(values, levels).mean(axis=0)
    return curve


def _check_ranks(ranks: ArrayLike) -> Array:
    """Return TARP ranks as an array of shape (R, F), or raise."""
    values = check_replicates("ranks", ranks)
    if values.min() < 0.0 or values.max() > 1.0:
        raise ArgumentError("ranks must be in [0, 1]; counts of draws must be divided by their number first.")
    return values


def _curves(values: Array, levels: Array) -> Array:
    """Return the coverage curve of each reference point, (F, A), at the alphas that `levels` are."""
    # Levels run upwards and alphas with them, so that curves are turned round.
    return curve_counts(values, levels)[:, ::-1] / len(values)


def check_replicates(name: str, values: ArrayLike) -> Array:
    """Return finite values of at least 10 replicates as an array of shape (R, columns), or raise."""
    array = np.asarray(values, dtype=np.float64)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[1] == 0:
        raise ArgumentError(f"{name} must have shape (replicates, columns) (got {np.shape(values)}).")
    if len(array) < MIN_REPLICATES:
        raise ArgumentError(
            f"{name} must hold at least {MIN_REPLICATES} replicates (got {len(array)}): fewer cannot tell."
        )
    if not np.isfinite(array).all():
        raise ArgumentError(
            f"{name} must be finite; see replicate {np.argwhere(~np.isfinite(array))[0, 0]}, counted from 0."
        )
    return array


def _rmse(curves: Array, levels: Array) -> Array:
    """Return eq. (15) of each curve, (..., A) -> (...)."""
    errors: Array = np.sqrt(np.square(curves - levels).mean(axis=-1))
    return errors


def _bootstrap(values: Array, levels: Array, *, seed: int) -> tuple[Array, float]:
    """Return the sd of the mean curve, (A,), and that of the mean RMSE, over bootstrapped replicates.

    The RMSE's bootstrap draws reference points as well: other points are part of a repetition.
    """
    rng = np.random.default_rng(seed)
    num_replicates, num_references = values.shape
    width = len(levels) + 1
    # A value's bin is the number of levels at or below it; one count over all columns is enough.
    bins = np.searchsorted(levels, values, side="right") + width * np.arange(num_references)
    curves = np.empty((_NUM_BOOTSTRAPS, len(levels)))
    errors = np.empty(_NUM_BOOTSTRAPS)
    for index in range(_NUM_BOOTSTRAPS):
        rows = rng.integers(num_replicates, size=num_replicates)
        counts = np.bincount(bins[rows].ravel(), minlength=width * num_references)
        drawn = np.cumsum(counts.reshape(num_references, width), axis=1)[:, :-1] / num_replicates
        curves[index] = drawn.mean(axis=0)
        columns = rng.integers(num_references, size=num_references)
        errors[index] = _rmse(drawn, levels)[columns].mean()
    return curves.std(axis=0, ddof=1), float(errors.std(ddof=1))


def _notes(num_replicates: int) -> tuple[str, ...]:
    """Return what is to be said about the number of replicates."""
    if num_replicates >= _FEW_REPLICATES:
        return ()
    return (f"{num_replicates} replicates, fewer than {_FEW_REPLICATES}: only gross faults can be seen.",)
