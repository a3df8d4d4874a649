"""DPVIm's posterior: the iterates' mean over their settled end, their spread there as noise. Public side."""

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.baselines.dpvim_trace import DPVImRelease
from nadpvi.checks import check_count, check_positive
from nadpvi.columns import listed
from nadpvi.containers.posterior import Posterior, model_variables
from nadpvi.containers.storage import package_versions
from nadpvi.errors import ArgumentError, DivergenceError, StationarityWarning
from nadpvi.guides import Guide
from nadpvi.privacy.randomness import check_seed

__all__ = ["Suffix", "dpvim_posterior", "draw_theta", "settled_suffix"]

Array = NDArray[np.float64]

_SLOPE = 0.05
_FARTHEST = 1e9  # of an iterate: far beyond any prior, and where draws still have digits
_NUM_STARTS = 10
_LEAST_ROWS = 10


class Suffix(NamedTuple):
    """The settled end of a trace, coordinate by coordinate; every array has shape (..., D).

    Attributes
    ----------
    start : ndarray of int
        Its first row.
    mean, sd : ndarray
        Of the iterates in it.
    slope : ndarray
        How far the regression line through it rises from its first row to its last.
    is_settled : ndarray of bool
        False where no suffix passed the test; the shortest is described then.
    """

    start: NDArray[np.intp]
    mean: Array
    sd: Array
    slope: Array
    is_settled: NDArray[np.bool_]


def settled_suffix(phi: Array, *, largest_slope: float = _SLOPE, num_starts: int = _NUM_STARTS) -> Suffix:
    """Return, for each coordinate, the longest suffix through which a regression line is nearly flat.

    Suffixes start at multiples of a tenth of the trace (`num_starts`). Each coordinate is regressed on the
    share of the suffix that has passed, 0 to 1, so that the slope is the line's whole rise, in units of phi;
    the first start at which its size is below `largest_slope` is taken. This is the test of DPVIm's authors
    [1]_, with the numbers of their code for UCI Adult; some of their scripts compare the signed slope, to
    which a fall of any steepness is settled.

    Parameters
    ----------
    phi : ndarray, shape (..., T, D)
        Iterates, scales unconstrained.
    largest_slope : float
        Positive.
    num_starts : int
        At least 1; T must be at least ten times as many.

    Raises
    ------
    ArgumentError
        If a setting is out of range, or the trace is too short.

    References
    ----------
    .. [1] Jalko, Prediger, Honkela and Kaski (2023). DPVIm: Differentially private variational inference
       improved. Transactions on Machine Learning Research. arXiv:2210.15961. Their experiments' code is
       github.com/DPBayes/dpvim-experiments.

    Examples
    --------
    >>> steps = np.arange(100.0)
    >>> phi = np.stack([np.maximum(30.0 - steps, 0.0), np.zeros(100)], axis=1)
    >>> found = settled_suffix(phi)
    >>> found.start.tolist(), found.mean.tolist()
    ([30, 0], [0.0, 0.0])
    """
    check_positive("largest_slope", largest_slope)
    check_count("num_starts", num_starts)
    num_steps = phi.shape[-2]
    if num_steps < num_starts * _LEAST_ROWS:
        raise ArgumentError(
            f"the trace must hold at least {num_starts * _LEAST_ROWS} steps for {num_starts} starts "
            f"(got {num_steps})."
        )
    starts = np.arange(num_starts) * num_steps // num_starts
    described = [_line(phi[..., start:, :]) for start in starts]
    slopes = np.stack([slope for _, _, slope in described])
    is_flat = np.abs(slopes) < largest_slope
    is_settled = np.asarray(is_flat.any(axis=0))
    # The first that passes; the shortest where none does.
    chosen = np.where(is_settled, is_flat.argmax(axis=0), num_starts - 1)
    means, sds = (np.stack(values) for values in zip(*((m, s) for m, s, _ in described), strict=True))
    mean, sd, slope = (np.take_along_axis(each, chosen[None], axis=0)[0] for each in (means, sds, slopes))
    return Suffix(starts[chosen], mean, sd, slope, is_settled)


def _line(values: Array) -> tuple[Array, Array, Array]:
    """Return mean, sd and the regression line's rise along the axis before the last."""
    share = np.linspace(-0.5, 0.5, values.shape[-2])
    mean = values.mean(axis=-2)
    slope = np.einsum("t,...td->...d", share, values - mean[..., None, :]) / (share @ share)
    return mean, values.std(axis=-2), slope


def draw_theta(suffix: Suffix, *, guide: Guide, num_draws: int, rng: np.random.Generator) -> Array:
    """Return draws of unconstrained theta from q, widened by the locations' spread, shape (..., S, K).

    Parameters
    ----------
    suffix : Suffix
        Of one trace, or of many at once.
    guide : Guide
        The variational family.
    num_draws : int
        S.
    rng : numpy.random.Generator
    """
    num_params = guide.num_params(suffix.mean.shape[-1])
    shape = (*suffix.mean.shape[:-1], num_draws)
    theta = guide.draw(suffix.mean[..., None, :], rng.standard_normal((*shape, guide.num_noise(num_params))))
    theta += suffix.sd[..., None, :num_params] * rng.standard_normal((*shape, num_params))
    return theta


def dpvim_posterior(
    release: DPVImRelease,
    *,
    draws: int = 4000,
    seed: int | None = None,
    largest_slope: float = _SLOPE,
    num_starts: int = _NUM_STARTS,
) -> Posterior:
    """Return the posterior that DPVIm reports: q at the averaged iterate, widened by the iterates' noise.

    Averages are taken over each coordinate's settled suffix (`settled_suffix`). Around its optimum an iterate
    scatters with the noise of the mechanism, and the scatter of a location in its suffix, sd s_mu, is taken
    for the noise in it: ``theta ~ Normal(mu_bar, q's variance at phi_bar + s_mu^2)`` [1]_. What scatters is
    the single iterate; the average does so less, unless the run is short against its relaxation. The noise in
    the scales is averaged but not integrated over.

    Parameters
    ----------
    release : DPVImRelease
        From `dpvim_release`.
    draws : int
        Independent draws, in one chain.
    seed : int, optional
        Makes the draws reproducible. This is post-processing: the seed is no secret.
    largest_slope, num_starts
        Of the convergence test.

    Returns
    -------
    Posterior
        Under the release's guarantee: (epsilon, delta) for the neighbouring relation and unit that it names.

    Raises
    ------
    ArgumentError
        If `release` is none of DPVIm's, a setting is out of range, or the trace is too short.
    DivergenceError
        If its iterates ran away.

    Warns
    -----
    StationarityWarning
        If a coordinate has no settled suffix; its last tenth was averaged.

    References
    ----------
    .. [1] Jalko, Prediger, Honkela and Kaski (2023). DPVIm: Differentially private variational inference
       improved. Transactions on Machine Learning Research. arXiv:2210.15961.
    """
    if not isinstance(release, DPVImRelease):
        raise ArgumentError(
            f"release must be a DPVImRelease, from dpvim_release (got {type(release).__name__})."
        )
    check_count("draws", draws)
    rng = np.random.default_rng(None if seed is None else check_seed("seed", seed))
    description = release.description
    if np.abs(release.phi).max() > _FARTHEST:
        raise DivergenceError(
            f"the run diverged: its iterates reach {np.abs(release.phi).max():.3g}; take smaller steps "
            "(learning_rate_constant), or more of them."
        )
    suffix = settled_suffix(release.phi, largest_slope=largest_slope, num_starts=num_starts)
    restless = [
        label for label, flat in zip(description.phi_labels, suffix.is_settled, strict=True) if not flat
    ]
    if restless:
        warnings.warn(
            f"DPVIm's convergence test fails for {listed(restless)}: the iterates were still on their way, "
            "or they scatter more than largest_slope allows.",
            StationarityWarning,
            stacklevel=2,
        )
    theta = draw_theta(suffix, guide=description.guide, num_draws=draws, rng=rng)[None]
    settings = {
        "method": "dpvim",
        "largest_slope": float(largest_slope),
        "num_starts": int(num_starts),
        "suffix_start": suffix.start.tolist(),
        "not_settled": restless,
        "versions": package_versions(),
        "release_versions": release.versions,
    }
    return Posterior(
        groups={"posterior": model_variables(description, theta)},
        settings=settings,
        guarantee=release.guarantee,
        description=description,
    )
