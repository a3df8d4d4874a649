"""Whether a curvature that was released beside the trace is that of the trace."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from nadpvi.containers.release import Release
from nadpvi.diagnostics.findings import Finding, make_finding
from nadpvi.diagnostics.limits import critical
from nadpvi.gradient_model.certain_precision import certain_precision
from nadpvi.gradient_model.sums import make_trace_sums

__all__ = ["released_curvature_findings"]

FloatArray = NDArray[np.float64]


# Clipping takes off, and weights move with the iterate: the dense method allows for a factor of log sd 0.2.
# Beyond this one the estimate only misleads it.
_ALLOWED_FACTOR = 2.0
# The dense method handles fewer, and nothing else reads a released curvature.
_MOST_COORDINATES = 400
# Of all coordinates together, where none is conspicuous by itself.
_FALSE_ALARM_OF_ALL = 1e-6


class _Comparison(NamedTuple):
    """A released curvature and a trace: errors between their slopes, and the slopes' ratio, shape (M,)."""

    score: FloatArray
    ratio: FloatArray


def released_curvature_findings(
    release: Release, *, phi: FloatArray | None, noisy_gradient: FloatArray | None
) -> list[Finding]:
    """Return a warning where the trace's slopes contradict a released curvature.

    Parameters
    ----------
    release : Release
    phi, noisy_gradient : ndarray, shape (n, D), or None
        Its window; None where it keeps sums, which cannot show this.
    """
    if release.curvature is None or phi is None or noisy_gradient is None:
        return []
    size = release.curvature.shape[0]
    found = _compare(release, phi, noisy_gradient)
    if found is None:
        return []
    is_joint = stats.chi2.sf(np.square(found.score).sum(), size) < _FALSE_ALARM_OF_ALL
    finding = make_finding(
        "released_curvature",
        severity="warning",
        labels=release.phi_labels[:size],
        is_bad=found.score > (1.0 if is_joint else float(critical(size))),
        badness=found.score,
        value=found.ratio,
        threshold=_ALLOWED_FACTOR,
        message="the released curvature is not that of the trace in {who}: it is {value} times the slope of "
        "the gradients, where a factor of {threshold} either way is allowed for, so that method='dense' "
        "misplaces its intervals",
        remedy="give the curvature in the units of the loss (see Release.from_arrays), or leave it out",
    )
    return [] if finding is None else [finding]


def _compare(release: Release, phi: FloatArray, noisy_gradient: FloatArray) -> _Comparison | None:
    """Return how far the slopes are beyond what a released curvature allows for, or None where none can tell.

    The regression of gradient i on its own iterate i has the slope kappa * sum_j (P + H)_ij S_ji / S_ii, with
    S the second moments of the iterates about their mean and P what the prior adds, whether or not
    coordinates interact. H may be off by a factor of up to 2, either way. As in any autoregression (White
    1961, Biometrika 48, 85) slopes are overestimated, by twice their variance over themselves.
    """
    if release.curvature is None or release.curvature_std is None:
        return None
    size = release.curvature.shape[0]
    known = slice(0, release.dimension if release.description is None else len(release.description.names))
    if known.stop > _MOST_COORDINATES:
        return None
    sums = make_trace_sums(phi[:, known], noisy_gradient[:, known], burn_in=0.0)
    if not (sums.s_pp > 0).all():
        return None  # the gradient model refuses such a release
    centred = phi[:, known] - sums.phi_bar
    moments = centred.T @ centred
    inner = moments[:size, :size] / sums.s_pp[:size, None]  # S_ij / S_ii
    slope = sums.slope / release.sampling_rate
    observed, of_records = slope[:size], (release.curvature * inner).sum(axis=1)
    of_prior = _prior_precision(release, phi.mean(axis=0), size)
    noise = sums.residual_sd[:size] / (release.sampling_rate * np.sqrt(sums.s_pp[:size]))
    ends = of_prior + np.multiply.outer([1.0 / _ALLOWED_FACTOR, _ALLOWED_FACTOR], of_records)
    # At most 2 errors, which a walk that nothing pulls back shows.
    largest = ends.max(axis=0)
    bias = 2.0 * noise * np.where(largest > noise, noise / np.maximum(largest, noise), 1.0)
    above = observed - ends.max(axis=0) - bias
    beyond = np.maximum(ends.min(axis=0) - observed, above) - _left_out(slope, moments=moments, size=size)
    score = np.maximum(beyond, 0.0) / np.hypot(noise, _spread(release.curvature_std, inner))
    with np.errstate(divide="ignore", invalid="ignore"):
        return _Comparison(score, (of_prior + of_records) / observed)


def _left_out(slope: FloatArray, *, moments: FloatArray, size: int) -> FloatArray:
    """Return how far coordinates beyond the matrix may move its slopes, |A_ij| being sqrt(A_ii A_jj) at most.

    Iterates that settled have moments proportional to the curvature's inverse, so that a slope is the inverse
    of such an entry and A_ii is larger by S_ii (S^-1)_ii.
    """
    if size == len(slope):
        return np.zeros(size)
    variances = np.diag(moments)
    inflation = variances * np.diag(np.linalg.pinv(moments, hermitian=True))
    root = np.sqrt(np.maximum(slope * inflation, 0.0))
    share = np.abs(moments[:size, size:]) / variances[:size, None]
    moved: FloatArray = root[:size] * (share @ root[size:])
    return moved


def _spread(std: FloatArray, share: FloatArray) -> FloatArray:
    """Return the sd of the released part of each slope; infinite where it takes an unknown entry."""
    with np.errstate(invalid="ignore"):
        each = np.where(share == 0.0, 0.0, std * share)
    spread: FloatArray = np.sqrt(np.square(each).sum(axis=1))
    return spread


def _prior_precision(release: Release, center: FloatArray, size: int) -> FloatArray:
    """Return what the prior adds to the curvature, shape (M,): without a model nothing that is known."""
    if release.description is None:
        return np.zeros(size)
    return certain_precision(release.description, center=center)[:size]
