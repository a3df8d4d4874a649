"""The post-processing model: sums of a trace, priors, and the density that the Stan program samples.

`sums` takes the trace, `priors` makes a `GradientModel` of it, `density` is the Python twin of
``stan/gradient_model.stan``.
"""

from nadpvi.gradient_model.data import SUM_NAMES, GradientModel, TraceSums, join_models
from nadpvi.gradient_model.density import (
    ConditionalNormal,
    DensityGradient,
    conditional_delta,
    grad_log_collapsed,
    grad_log_density,
    log_collapsed,
    log_density,
    log_density_trace,
)
from nadpvi.gradient_model.priors import ReleasedTrace, check_priors, make_gradient_model
from nadpvi.gradient_model.sums import make_trace_sums, window_start

__all__ = [
    "SUM_NAMES",
    "ConditionalNormal",
    "DensityGradient",
    "GradientModel",
    "ReleasedTrace",
    "TraceSums",
    "check_priors",
    "conditional_delta",
    "grad_log_collapsed",
    "grad_log_density",
    "join_models",
    "log_collapsed",
    "log_density",
    "log_density_trace",
    "make_gradient_model",
    "make_trace_sums",
    "window_start",
]
