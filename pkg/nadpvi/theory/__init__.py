"""What theory says of a run in closed form: its iterates, its curvature estimate, its step, its subsamples.

The proofs of the paper's theorems 2 to 4 start from a linear gradient with noise that is independent from
step to step (Eq. 22). Where a line of the paper differs from what is computed here, the function says so.
"""

from nadpvi.theory.curvature import curvature_variance, least_curvature_variance
from nadpvi.theory.iterates import (
    IterateLaw,
    expected_squared_distance,
    iterate_law,
    stationary_covariance,
)
from nadpvi.theory.learning_rate import DescentProblem, convergence_bound, optimal_learning_rate
from nadpvi.theory.subsampling import SubsampledSum, subsampled_sum

__all__ = [
    "DescentProblem",
    "IterateLaw",
    "SubsampledSum",
    "convergence_bound",
    "curvature_variance",
    "expected_squared_distance",
    "iterate_law",
    "least_curvature_variance",
    "optimal_learning_rate",
    "stationary_covariance",
    "subsampled_sum",
]
