"""Checks of the run: step size, whether the iterates had arrived, and whether the window is long enough."""

import numpy as np

from nadpvi.diagnostics.findings import Finding, make_finding
from nadpvi.diagnostics.limits import FEW_RELAXATIONS, Subject, by_kind, stationarity_scores
from nadpvi.diagnostics.window import WindowNumbers

__all__ = ["check_prior_weight", "check_relaxation", "check_stationarity", "check_step_size"]

# An AR(1) alternates about its mean from 1 on, and diverges from 2 on. Measured: coverage is as good up to
# 1.3 as below 1, and some posteriors are lost from there on.
_OVERSHOOT, _WILD, _DIVERGENCE = 1.0, 1.3, 2.0
# The prior then says more than the records.
_HEAVY_PRIOR = 0.5


def check_step_size(numbers: WindowNumbers, subject: Subject) -> list[Finding | None]:
    """Find steps that go past the optimum."""
    step = np.nan_to_num(numbers.step, nan=0.0)
    remedy = "halve learning_rate_constant (or learning_rate), or more"
    bounds = (
        ("warning", _DIVERGENCE, np.inf, "diverge", "each step ends further from the optimum"),
        ("warning", _WILD, _DIVERGENCE, "swing wildly", "the noise is swollen and gradients are not a line"),
        ("note", _OVERSHOOT, _WILD, "overshoot", "iterates jump across the optimum"),
    )
    return [
        make_finding(
            "step_size",
            severity=severity,
            labels=subject.labels,
            is_bad=(step >= low) & (step < high),
            badness=step,
            value=step,
            threshold=low,
            message=f"iterates {verb} in {{who}}: step size times curvature is {{value}}, and from "
            f"{{threshold}} on {consequence}",
            remedy=remedy,
        )
        for severity, low, high, verb, consequence in bounds
    ]


def check_stationarity(numbers: WindowNumbers, subject: Subject) -> list[Finding | None]:
    """Find a window that begins elsewhere than it ends."""
    scores = stationarity_scores(numbers)
    value = np.fmax(np.abs(numbers.drift), np.abs(numbers.start))
    worst = int(np.argmax(scores))
    return [
        make_finding(
            "stationarity",
            severity="warning",
            labels=subject.labels,
            is_bad=scores > 1.0,
            badness=scores,
            value=value,
            threshold=float(np.nan_to_num(value[worst] / scores[worst])) if scores[worst] > 0 else 0.0,
            message="the window begins before the iterates have arrived in {who}: its start lies {value} "
            "standard errors from its rest, where {threshold} is the limit, and the curvature is then that "
            "of the way there",
            remedy="raise burn_in (or burn_in='auto'), start nearer (initial_mu, initial_u), or take "
            "early_steps or more steps",
        )
    ]


def check_relaxation(numbers: WindowNumbers, subject: Subject) -> list[Finding | None]:
    """Find a window too short to see the iterates return."""
    times = np.maximum(numbers.relaxation_times, 0.0)
    is_slow = times < FEW_RELAXATIONS
    narrow = (
        "the window is short for {who}: it holds {value} relaxation times 1/(lambda*kappa*a) where "
        "{threshold} are needed, so that intervals may be too narrow",
        "raise learning_rate_constant (or learning_rate, or learning_rate_factors of these)",
    )
    # The window is needed to tell the curvature, and then it is told by what was released.
    resting = (
        "the window is short for {who}: it holds {value} relaxation times 1/(lambda*kappa*a) where "
        "{threshold} would tell the curvature, so that intervals rest on the one that was released",
        "a prior (or covariates) that expects such records makes suggested steps larger",
    )
    found = [
        *((severity, is_bad, narrow) for severity, is_bad in by_kind(is_slow, subject.is_location)),
        ("note", is_slow, resting),
    ]
    return [
        make_finding(
            "relaxation",
            severity=severity,
            labels=subject.labels,
            is_bad=is_bad & (subject.is_released == (words is resting)),
            badness=-times,
            value=times,
            threshold=FEW_RELAXATIONS,
            message=words[0],
            remedy=words[1],
        )
        for severity, is_bad, words in found
    ]


def check_prior_weight(numbers: WindowNumbers, subject: Subject) -> list[Finding | None]:
    """Find coordinates about which the prior says more than the records."""
    weight = numbers.prior_weight
    # The model's own prior is what such a coordinate should return to.
    is_grave = subject.is_location & np.full(len(weight), not subject.is_model_prior)
    remedy = "give a larger epsilon, more records or a lower clip_norm"
    if not subject.is_model_prior:
        remedy += ", or use phi_star_prior='model', so that they return to the model's own prior"
    return [
        make_finding(
            "prior_weight",
            severity=severity,
            labels=subject.labels,
            is_bad=is_bad,
            badness=weight,
            value=weight,
            threshold=_HEAVY_PRIOR,
            message="noise drowns {who}: {percent} of the precision of phi_star comes from its prior",
            remedy=remedy,
        )
        for severity, is_bad in by_kind(weight > _HEAVY_PRIOR, is_grave)
    ]
