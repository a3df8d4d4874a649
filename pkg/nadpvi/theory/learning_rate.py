"""What step size does: the bound on how far DP-SGD has come (theorem 4), and what is best in it. Public side.

The loss L has a gradient with Lipschitz constant H. One step of size lambda along a noisy gradient of mean
``kappa grad L`` and second moment at most V changes the expected loss by at most
``-lambda kappa |grad L|^2 + lambda^2 H V / 2``. Summed over T steps from a loss that is E above its infimum,

    mean_t E |grad L(phi_t)|^2 <= E / (lambda kappa T) + lambda H V / (2 kappa)

which is least at ``lambda^2 = 2 E / (H T V)``. With gradients up to G and a subsample that misses its mean by
at most e_sub, V is ``2 kappa^2 G^2 + 2 e_sub^2 + s^2 d``: the factors 2 are the price of not asking for more
than that. Without a subsampling error, or with one of mean zero, kappa^2 G^2 + e_sub^2 + s^2 d is enough, and
the best step is up to sqrt(2) times longer; Eq. (54) is that for e_sub = 0.
"""

import math
from typing import NamedTuple

from nadpvi.checks import check_count, check_positive, check_real
from nadpvi.errors import ArgumentError

__all__ = ["DescentProblem", "convergence_bound", "optimal_learning_rate"]


class DescentProblem(NamedTuple):
    """What the bound needs to know of a run.

    Parameters
    ----------
    excess_loss : float
        L(phi_0) - inf L > 0.
    smoothness : float
        H > 0, Lipschitz constant of the loss gradient: the largest curvature.
    num_steps : int
        T.
    sampling_rate : float
        kappa in (0, 1].
    noise_std : float
        s = sigma C, sd of the privacy noise in each of the coordinates.
    dimension : int
        d.
    gradient_bound : float
        G, the largest norm of the loss gradient over all records.
    subsampling_error : float
        e_sub, how far a subsample's sum is from its mean at most.
    """

    excess_loss: float
    smoothness: float
    num_steps: int
    sampling_rate: float
    noise_std: float
    dimension: int
    gradient_bound: float = 0.0
    subsampling_error: float = 0.0

    @property
    def second_moment(self) -> float:
        """V, the bound on ``E |noisy gradient|^2``."""
        signal = (self.sampling_rate * self.gradient_bound) ** 2 + self.subsampling_error**2
        return 2.0 * signal + self.dimension * self.noise_std**2


def convergence_bound(problem: DescentProblem, *, learning_rate: float) -> float:
    """Return the bound on the mean over the run of ``E |grad L|^2`` (theorem 4).

    Parameters
    ----------
    problem : DescentProblem
    learning_rate : float
        lambda > 0, of all coordinates.

    Raises
    ------
    ArgumentError
        If a number is not in its range.
    """
    _check(problem)
    rate = check_positive("learning_rate", learning_rate) * problem.sampling_rate
    way = problem.excess_loss / (rate * problem.num_steps)
    return way + rate * problem.smoothness * problem.second_moment / (2.0 * problem.sampling_rate**2)


def optimal_learning_rate(problem: DescentProblem) -> float:
    """Return the step size at which `convergence_bound` is least (section 12, the line before Eq. 54).

    Eq. (54) has kappa^2 G^2 without the factor 2, as the tighter bound for e_sub = 0 does: its step is up to
    sqrt(2) times longer than this one, which costs this bound at most 6 %. Where the privacy noise is nearly
    all there is, this is the heuristic of Eq. (55) with ``lambda_c = sqrt(excess_loss / smoothness)``: for a
    quadratic loss of one parameter, the start's distance over sqrt(2).

    Parameters
    ----------
    problem : DescentProblem

    Examples
    --------
    >>> problem = DescentProblem(excess_loss=8.0, smoothness=2.0, num_steps=100, sampling_rate=0.1,
    ...                          noise_std=5.0, dimension=4)
    >>> round(optimal_learning_rate(problem), 6) == round(math.sqrt(2) * 2.0 / (5.0 * math.sqrt(100 * 4)), 6)
    True
    """
    _check(problem)
    scale = problem.smoothness * problem.num_steps * problem.second_moment
    return math.sqrt(2.0 * problem.excess_loss / scale)


def _check(problem: DescentProblem) -> None:
    """Raise `ArgumentError` unless every number is in its range."""
    for name in ("excess_loss", "smoothness", "noise_std"):
        check_positive(name, getattr(problem, name))
    for name in ("num_steps", "dimension"):
        check_count(name, getattr(problem, name))
    if not 0.0 < check_real("sampling_rate", problem.sampling_rate) <= 1.0:
        raise ArgumentError(f"sampling_rate must be in (0, 1] (got {problem.sampling_rate:g}).")
    for name in ("gradient_bound", "subsampling_error"):
        if check_real(name, getattr(problem, name)) < 0.0:
            raise ArgumentError(f"{name} must not be negative (got {getattr(problem, name):g}).")
