"""The clip norm, and what part of it the scales' gradients get.

Clipping to C moves a location's optimum by about N E[g - clip(g)] / h, h its curvature, and the noise grows
with C. The clip norm is the least with which that shift is a twentieth of the posterior's sd, root mean
square over parameters and over tables that the prior expects, and no curvature loses more than a twentieth;
never more than the model's own bound allows. (With a tenth, and over 95 % of the tables, the others inflated
z on Beta-Bernoulli.) Of the scales' preconditioner beta_u, which takes a part of the norm and divides the
scales' noise, the value is chosen with which the expected sds, the guide's error included, are smallest.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.errors import ModelError
from nadpvi.planning.predictive import Predictive
from nadpvi.planning.rounding import rounded

__all__ = ["Clipping", "choose_clipping", "least_clip_norm"]

Array = NDArray[np.float64]

_MOST_BIAS = 0.05
_MOST_FLATTENED = 0.05
_PRECONDITIONERS = np.geomspace(1.0, 1e5, 16)
_BISECTIONS = 10


class Clipping(NamedTuple):
    """A clip norm with the preconditioner that it was chosen for."""

    clip_norm: float
    preconditioner_u: float


def choose_clipping(found: Predictive, *, noise: float) -> Clipping:
    """Return the clip norm and the preconditioner with the smallest expected sds.

    Parameters
    ----------
    found : Predictive
    noise : float
        w / C.
    """
    typical = found.typical
    location_norms = np.linalg.norm(found.gradients, axis=2)
    best = (math.inf, Clipping(1.0, 1.0))
    for preconditioner in _PRECONDITIONERS:
        norms = np.hypot(location_norms, preconditioner * found.scale_norms)
        clip_norm = least_clip_norm(found, norms=norms, noise=noise)
        # Of log sd(u) at its optimum, whose curvature is 2 whatever u's is.
        scale_error = min(0.5 * noise * clip_norm / preconditioner, 1.0)
        # Not held to the prior's: a location that is drowned by one clip norm is drowned deeper by the next.
        told = noise * clip_norm / typical
        spread = float(np.log((1.0 + scale_error**2) / typical + told**2).mean())
        if spread < best[0]:
            best = (spread, Clipping(rounded(clip_norm), rounded(float(preconditioner))))
    return best[1]


def least_clip_norm(found: Predictive, *, norms: Array, noise: float) -> float:
    """Return the smallest clip norm whose clipping does no harm.

    Found by bisection between the largest norm and a small part of it.
    """
    high = float(norms.max())
    if high == 0.0:
        raise ModelError("the gradients of made-up records are all zero: the model does not use its outcome.")
    low = high / 1000.0
    for _ in range(_BISECTIONS):
        middle = math.sqrt(low * high)
        if _clips_too_much(found, norms=norms, clip_norm=middle, noise=noise):
            low = middle
        else:
            high = middle
    return high


def _clips_too_much(found: Predictive, *, norms: Array, clip_norm: float, noise: float) -> bool:
    """Return whether clipping moves the locations' optimum too far, in posterior sds, or flattens it.

    The shift is a root mean square over parameters and tables; what chance adds to the square, the records
    being a sample, is taken off. The clipped loss has the curvature E[score clip(g)] at the optimum, in place
    of E[score g]: where all gradients are cut their mean may well stay 0, and nothing is won.
    """
    lost = 1.0 - clip_norm / np.maximum(norms, clip_norm)
    num_rows = norms.shape[1]
    squares = found.gradients**2
    # Table by table: pooled, those with the largest gradients would speak for all.
    flattened = np.einsum("mr,mrk->mk", lost, squares) / np.maximum(squares.sum(axis=1), 1e-300)
    if flattened.mean(axis=0).max() > _MOST_FLATTENED:
        return True
    mean = np.einsum("mr,mrk->mk", lost, found.gradients) / num_rows
    square = np.einsum("mr,mrk->mk", lost**2, squares) / num_rows
    excess = mean**2 - (square - mean**2) / num_rows
    told = np.minimum(noise * clip_norm / found.diagonal, found.prior_sd)
    variance = 1.0 / found.diagonal + told**2
    shift = (found.num_records / found.diagonal) ** 2 * excess / variance
    return bool(shift.mean() > _MOST_BIAS**2)
