"""All checks of a release's window, in the order in which their findings are told."""

import dataclasses
from collections.abc import Callable

from nadpvi.diagnostics.findings import Finding
from nadpvi.diagnostics.gradient_checks import (
    check_autocorrelation,
    check_claimed_noise,
    check_cross_curvature,
    check_extra_variance,
    check_linearity,
)
from nadpvi.diagnostics.limits import Subject
from nadpvi.diagnostics.run_checks import (
    check_prior_weight,
    check_relaxation,
    check_stationarity,
    check_step_size,
)
from nadpvi.diagnostics.window import WindowNumbers

__all__ = ["release_findings"]

# What follows from another finding, whose remedy comes first, is a note beside it.
_EXPLAINED_BY = {
    "autocorrelation": {"step_size", "linearity", "cross_curvature"},
    "extra_variance": {"step_size"},
}


def release_findings(numbers: WindowNumbers, subject: Subject) -> list[Finding]:
    """Return what the checks of a window find, the gravest kind first."""
    checks: tuple[Callable[[WindowNumbers, Subject], list[Finding | None]], ...] = (
        check_claimed_noise,
        check_step_size,
        check_stationarity,
        check_relaxation,
        check_linearity,
        check_cross_curvature,
        check_autocorrelation,
        check_extra_variance,
        check_prior_weight,
    )
    found = [item for check in checks for item in check(numbers, subject) if item is not None]
    grave = {item.check for item in found if item.severity == "warning"}
    return [
        dataclasses.replace(item, severity="note") if _EXPLAINED_BY.get(item.check, set()) & grave else item
        for item in found
    ]
