"""What a check found: one sentence with its number, its threshold and a remedy. Typed warnings of them."""

import json
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nadpvi.errors import (
    ArgumentError,
    GradientModelWarning,
    InferenceWarning,
    PriorWeightWarning,
    SamplerWarning,
    StationarityWarning,
)

__all__ = ["CATEGORIES", "SEVERITIES", "Finding", "make_finding", "warn_of"]

SEVERITIES = ("note", "warning")

# Which warning each check is issued as.
CATEGORIES: dict[str, type[InferenceWarning]] = {
    "step_size": StationarityWarning,
    "relaxation": StationarityWarning,
    "stationarity": StationarityWarning,
    "early_steps": StationarityWarning,
    "box": StationarityWarning,
    "linearity": GradientModelWarning,
    "claimed_noise": GradientModelWarning,
    "extra_variance": GradientModelWarning,
    "autocorrelation": GradientModelWarning,
    "cross_curvature": GradientModelWarning,
    "released_curvature": GradientModelWarning,
    "prior_weight": PriorWeightWarning,
    "divergences": SamplerWarning,
    "tree_depth": SamplerWarning,
    "energy": SamplerWarning,
    "r_hat": SamplerWarning,
    "effective_draws": SamplerWarning,
    "chains": SamplerWarning,
    "laplace_tau": SamplerWarning,
    "laplace_phi_star": SamplerWarning,
}

_NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a reader of the posterior should know.

    Parameters
    ----------
    check : str
        Which check; one of `CATEGORIES`.
    severity : "note" or "warning"
        A warning is about intervals that may be wrong, a note about something seen that is known to do
        little harm.
    coordinates : tuple of str
        The worst, at most three.
    num_coordinates : int
        How many there are in all.
    value : float
        The check's number for the worst; infinite where it has none.
    threshold : float
        What it was compared with.
    message : str
        What was seen and what it means.
    remedy : str
        What can be done.
    """

    check: str
    severity: str
    coordinates: tuple[str, ...]
    num_coordinates: int
    value: float
    threshold: float
    message: str
    remedy: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "coordinates", tuple(self.coordinates))
        if self.check not in CATEGORIES:
            raise ArgumentError(f"check must be one of {', '.join(CATEGORIES)} (got {self.check!r}).")
        if self.severity not in SEVERITIES:
            raise ArgumentError(f"severity must be one of {', '.join(SEVERITIES)} (got {self.severity!r}).")

    @property
    def category(self) -> type[InferenceWarning]:
        """The warning that this finding is issued as."""
        return CATEGORIES[self.check]

    def sentence(self) -> str:
        """Return one line: what was seen, and the remedy."""
        return f"{self.message}; {self.remedy}."

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON types; a number that is not finite becomes None."""
        content = asdict(self) | {"coordinates": list(self.coordinates)}
        for name in ("value", "threshold"):
            content[name] = content[name] if np.isfinite(content[name]) else None
        return content

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Finding":
        """Return the finding that `to_dict` gave."""
        numbers = {
            name: np.inf if data[name] is None else float(data[name]) for name in ("value", "threshold")
        }
        return cls(**(data | numbers))


def make_finding(
    check: str,
    *,
    severity: str,
    labels: Sequence[str],
    is_bad: NDArray[np.bool_],
    badness: NDArray[np.float64],
    value: NDArray[np.float64],
    threshold: float,
    message: str,
    remedy: str,
) -> Finding | None:
    """Return the finding about the marked coordinates, worst first, or None where none is marked.

    Parameters
    ----------
    check, severity, threshold, remedy
        As in `Finding`.
    labels : sequence of str
        Names of the D coordinates.
    is_bad : ndarray of bool, shape (D,)
    badness : ndarray, shape (D,)
        What ranks them: the larger, the worse.
    value : ndarray, shape (D,)
        The check's number for each.
    message : str
        A template: ``{who}`` becomes the coordinates, ``{value}`` the worst one's number, ``{percent}`` the
        same as a percentage, and ``{threshold}`` the threshold.
    """
    bad = np.flatnonzero(is_bad)
    if not bad.size:
        return None
    worst = bad[np.argsort(-badness[bad], kind="stable")]
    names = tuple(labels[i] for i in worst[:_NAMES_SHOWN])
    number = float(value[worst[0]])
    who = f"{bad.size} of {len(labels)} coordinates ({_listed(names, bad.size)})"
    filled = message.format(
        who=who, value=f"{number:.3g}", percent=f"{100 * number:.3g} %", threshold=f"{threshold:.3g}"
    )
    return Finding(
        check=check,
        severity=severity,
        coordinates=names,
        num_coordinates=int(bad.size),
        value=number if np.isfinite(number) else np.inf,
        threshold=float(threshold),
        message=filled,
        remedy=remedy,
    )


def _listed(names: tuple[str, ...], total: int) -> str:
    """Return the worst names, on one line whatever they hold."""
    shown = ", ".join(
        name if name.isprintable() else json.dumps(name) for name in (name[:80] for name in names)
    )
    return f"worst first: {shown}, ..." if total > len(names) else shown


def warn_of(findings: Iterable[Finding], *, stacklevel: int = 2) -> None:
    """Issue one typed Python warning for each finding of severity "warning"."""
    for finding in findings:
        if finding.severity == "warning":
            warnings.warn(finding.sentence(), finding.category, stacklevel=stacklevel + 1)
