"""Checks of the gradients: the noise that is claimed, a line, independent residuals, a diagonal curvature."""

import numpy as np
from scipy import stats

from nadpvi.diagnostics.findings import Finding, make_finding
from nadpvi.diagnostics.limits import FALSE_ALARM, FEW_RELAXATIONS, Subject, by_kind, critical
from nadpvi.diagnostics.window import WindowNumbers

__all__ = [
    "check_autocorrelation",
    "check_claimed_noise",
    "check_cross_curvature",
    "check_extra_variance",
    "check_linearity",
]

# In posterior sds of a location with its guide's sd; in units of u for a scale, whose guide's sd then changes
# by the same share.
_LARGE_SHIFT = 0.5
_LARGE_SCALE_SHIFT = 0.25
# tau of ten times the privacy noise. Healthy releases pass it too: tau over the noise grows with the root of
# the number of records, and at epsilon = 8 was measured to be 21 with 1e5 records in 1,000 steps.
_FAR_VARIANCE = 100.0
# Without tau, intervals are then 5 % too narrow.
_MUCH_VARIANCE = 1.1
_LARGE_AUTOCORRELATION = 0.1
# Intervals that ignore a correlation of this size are 15 % too narrow: (1 + r^2)^1/2 / (1 - r^2).
_LARGE_CORRELATION = 0.3


def check_claimed_noise(numbers: WindowNumbers, subject: Subject) -> list[Finding | None]:
    """Find residuals that vary less than the privacy noise alone."""
    ratio, freedom = numbers.variance_ratio, numbers.num_kept - 2
    chance = stats.chi2.cdf(ratio * freedom, freedom)
    return [
        make_finding(
            "claimed_noise",
            severity="warning",
            labels=subject.labels,
            is_bad=chance < FALSE_ALARM / len(ratio),
            badness=-ratio,
            value=ratio,
            threshold=float(stats.chi2.isf(1.0 - FALSE_ALARM / len(ratio), freedom) / freedom),
            message="noisy gradients vary less than the noise that the release claims in {who}: {percent} of "
            "its variance, where below {threshold} of it does not happen by chance",
            remedy="check noise_multiplier, clip_norm and preconditioner, and that noisy_gradient holds "
            "sums, not means",
        )
    ]


def check_linearity(numbers: WindowNumbers, subject: Subject) -> list[Finding | None]:
    """Find gradients that bend."""
    score, shift = np.abs(numbers.quadratic), np.abs(numbers.quadratic_shift)
    limit = float(critical(len(score), max(numbers.num_kept - 3, 1)))
    spread = np.hypot(numbers.phi_star_sd, subject.guide_sd)
    allowed = np.where(subject.is_location, _LARGE_SHIFT * spread, _LARGE_SCALE_SHIFT)
    return [
        make_finding(
            "linearity",
            severity=severity,
            labels=subject.labels,
            is_bad=is_bad,
            badness=score,
            value=score,
            threshold=limit,
            message="gradients bend within the window in {who}: a quadratic term is {value} standard errors "
            "from 0, where {threshold} is the limit"
            + (", and would move the optimum" if severity == "warning" else ""),
            remedy="raise burn_in, or lower learning_rate_constant so that iterates stay nearer the optimum",
        )
        for severity, is_bad in by_kind(score > limit, shift > allowed)
    ]


def check_cross_curvature(numbers: WindowNumbers, subject: Subject) -> list[Finding | None]:
    """Find gradients that follow other coordinates' iterates."""
    if not subject.is_diagonal:
        return []
    score, correlation = np.nan_to_num(np.abs(numbers.cross)), np.abs(numbers.cross_correlation)
    size = len(score)
    limit = float(critical(max(size * (size - 1), 1), max(numbers.num_kept - 3, 1)))
    # Slow iterates wander together by chance, like two random walks.
    is_seen = ~(numbers.relaxation_times < FEW_RELAXATIONS)
    score = np.where(is_seen & is_seen[numbers.cross_with], score, 0.0)
    pair = ""
    if score[(worst := int(np.argmax(score)))] > limit:
        pair = f" ({subject.labels[worst]} follows {subject.labels[int(numbers.cross_with[worst])]})"
    return [
        make_finding(
            "cross_curvature",
            severity=severity,
            labels=subject.labels,
            is_bad=is_bad,
            badness=score,
            value=score,
            threshold=limit,
            message="the curvature is not diagonal in {who}: gradients follow other coordinates by {value} "
            f"standard errors, where {{threshold}} is the limit{pair if severity == 'warning' else ''}"
            + (", so that intervals are too narrow" if severity == "warning" else ""),
            remedy="use method='dense'",
        )
        for severity, is_bad in by_kind(
            score > limit, (correlation > _LARGE_CORRELATION) & subject.is_location
        )
    ]


def check_autocorrelation(numbers: WindowNumbers, subject: Subject) -> list[Finding | None]:
    """Find residuals that remember each other."""
    value = numbers.autocorrelation
    freedom = numbers.num_kept - 2
    score = float(critical(len(value), freedom))
    limit = score / np.sqrt(freedom + score**2)  # the correlation that has this t
    size = np.abs(value)
    is_grave = (size > _LARGE_AUTOCORRELATION) & subject.is_diagonal
    dense = "use method='dense', " if subject.is_diagonal else ""
    return [
        make_finding(
            "autocorrelation",
            severity=severity,
            labels=subject.labels,
            is_bad=is_bad,
            badness=size,
            value=value,
            threshold=limit,
            message="residuals of neighbouring steps are correlated in {who}: {value}, where {threshold} is "
            "the limit, so that gradients hold more than a line and independent noise",
            remedy=f"{dense}raise burn_in, or lower learning_rate_constant (or learning_rate)",
        )
        for severity, is_bad in by_kind(size > limit, is_grave)
    ]


def check_extra_variance(numbers: WindowNumbers, subject: Subject) -> list[Finding | None]:
    """Find residuals that vary more than the privacy noise: a fault without tau, and else worth a note."""
    ratio, freedom = numbers.variance_ratio, numbers.num_kept - 2
    if subject.has_tau:
        severity, is_bad, threshold = "note", ratio > _FAR_VARIANCE, _FAR_VARIANCE
        message = (
            "noisy gradients vary far more than the privacy noise in {who}: {value} times its variance, by "
            "the subsampling of very many records, or because they are not a line"
        )
        remedy = "nothing needs to be done unless linearity, autocorrelation or step_size speaks too"
    else:
        chance = stats.chi2.sf(ratio * freedom, freedom)
        is_bad = (chance < FALSE_ALARM / len(ratio)) & (ratio > _MUCH_VARIANCE)
        severity, threshold = "warning", _MUCH_VARIANCE
        message = (
            "noisy gradients vary more than the privacy noise in {who}: {value} times its variance, so that "
            "intervals are too narrow"
        )
        remedy = "use subsampling_noise=True"
    return [
        make_finding(
            "extra_variance",
            severity=severity,
            labels=subject.labels,
            is_bad=is_bad,
            badness=ratio,
            value=ratio,
            threshold=threshold,
            message=message,
            remedy=remedy,
        )
    ]
