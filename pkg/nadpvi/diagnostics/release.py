"""`diagnose`: what a release alone shows about the posterior that can be made of it. Public, and free."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nadpvi.containers.release import Release
from nadpvi.diagnostics.burn_in import choose_burn_in
from nadpvi.diagnostics.checks import release_findings
from nadpvi.diagnostics.findings import Finding
from nadpvi.diagnostics.limits import Subject
from nadpvi.diagnostics.released import ReleaseWindow, released_window, window_numbers
from nadpvi.diagnostics.released_curvature import released_curvature_findings
from nadpvi.diagnostics.schedule import schedule_findings
from nadpvi.diagnostics.window import WindowNumbers
from nadpvi.errors import ArgumentError
from nadpvi.markup import html_frame, html_note, html_table

__all__ = ["Diagnostics", "ReleaseWindow", "diagnose", "diagnose_with"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Diagnostics:
    """What a release shows. Make it with `nadpvi.diagnose`.

    Attributes
    ----------
    table : DataFrame
        One row a coordinate: ``step`` (lambda*kappa*a), ``relaxation_steps`` (1 over it),
        ``relaxation_times`` (how many of them the window holds), ``drift`` and ``start`` (standard errors
        between the window's thirds, and of its first iterate), ``quadratic`` (t of a quadratic term),
        ``variance_ratio`` (residual over noise variance), ``autocorrelation`` (of the residuals), ``cross``
        and ``cross_with`` (largest t of a slope on another coordinate), ``prior_weight`` (share of phi_star's
        precision). NaN where the release does not show it.
    findings : tuple of Finding
        What passed its threshold, warnings before notes.
    not_checked : tuple of str
        Which checks this release does not allow, and why.
    burn_in : float or None
        Of the window; None where the release holds sums without saying.
    num_kept : int
        Noisy gradients in the window.
    """

    table: pd.DataFrame
    findings: tuple[Finding, ...]
    not_checked: tuple[str, ...]
    burn_in: float | None
    num_kept: int

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that put the intervals in doubt."""
        return tuple(finding for finding in self.findings if finding.severity == "warning")

    def __repr__(self) -> str:
        lines = [f"<nadpvi.Diagnostics: {len(self.table)} coordinates, {self.num_kept} noisy gradients."]
        lines += [f"  {finding.severity}: {finding.sentence()}" for finding in self.findings]
        lines += [f"  not checked: {line}" for line in self.not_checked]
        return "\n".join(lines) + ">" if len(lines) > 1 else lines[0] + " Nothing found.>"

    def _repr_html_(self) -> str:
        stamp = "The intervals are in doubt." if self.warnings else "Nothing puts the intervals in doubt."
        found = [(f.check, f.severity, f.sentence()) for f in self.findings]
        parts = [html_note(stamp, is_good=not self.warnings)]
        if found:
            parts.append(
                html_table("Findings", header=["check", "severity", "finding and remedy"], rows=found)
            )
        if self.not_checked:
            lines = [(str(number), line) for number, line in enumerate(self.not_checked, start=1)]
            parts.append(html_table("Not checked", header=["", "what, and why"], rows=lines))
        return "".join(parts) + html_frame(f"Coordinates; {self.num_kept:,} noisy gradients", self.table)

    def to_dict(self) -> dict[str, Any]:
        """Return findings and window as JSON types, without the table."""
        return {
            "burn_in": self.burn_in,
            "num_kept": self.num_kept,
            "findings": [finding.to_dict() for finding in self.findings],
            "not_checked": list(self.not_checked),
        }


def diagnose(release: Release, burn_in: float | Literal["auto"] | None = None) -> Diagnostics:
    """Return what a release shows about the posterior that `infer` would make of it: no privacy, no Stan.

    Parameters
    ----------
    release : Release
    burn_in : float or "auto", optional
        Share of the first steps left out of the window, in [0, 1), as in `nadpvi.infer`; 0.2 when omitted.

    Returns
    -------
    Diagnostics
        Numbers for each coordinate, and findings with their remedies. On a healthy release the chance that
        any check is passed by chance is below 5 % (``benchmarks/results/diagnostics.md``).

    Raises
    ------
    ArgumentError
        If `release` is not one, holds no noise, or the window is too short or fixed.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> phi, gradient, now = np.empty((1000, 1)), np.empty((1000, 1)), 0.0
    >>> for t in range(1000):
    ...     phi[t], gradient[t] = now, 50.0 * (now - 1.0) + 40.0 * rng.standard_normal()
    ...     now = now - 0.002 * gradient[t, 0]
    >>> made = Release.from_arrays(phi=phi, noisy_gradient=gradient, noise_multiplier=20.0, clip_norm=2.0,
    ...     sampling_rate=0.1, learning_rate=0.002)
    >>> diagnose(made).findings
    ()
    >>> diagnose(made, burn_in=0.0).findings[0].check
    'stationarity'
    """
    if not isinstance(release, Release):
        raise ArgumentError(f"release must be a Release (got {type(release).__name__}).")
    if isinstance(burn_in, str) and burn_in == "auto":
        burn_in = choose_burn_in(release)
    # What `infer` takes the curvature to be by itself.
    return diagnose_with(release, burn_in=burn_in, is_diagonal=release.curvature is None)


def diagnose_with(
    release: Release,
    *,
    burn_in: float | None,
    prior_sd: FloatArray | None = None,
    prior_weight: FloatArray | None = None,
    is_model_prior: bool = False,
    has_tau: bool = True,
    is_diagonal: bool = True,
) -> Diagnostics:
    """Return the diagnostics under the settings of one inference.

    Parameters
    ----------
    release, burn_in
        As in `diagnose`.
    prior_sd : ndarray, shape (D,), optional
        Of phi_star; when omitted that of the model, and 1 where it says nothing.
    prior_weight : ndarray, shape (D,), optional
        Share of phi_star's variance that its prior left, of draws; when omitted by the regression's error.
    is_model_prior, has_tau, is_diagonal : bool
        Whether phi_star has the model's own prior, extra variance is inferred, and curvature is diagonal.
    """
    if not (release.noise_std > 0).all():
        raise ArgumentError(
            "the release holds no noise (noise_multiplier is 0), so there is nothing to check."
        )
    window = released_window(release, burn_in=burn_in)
    numbers = window_numbers(release, window, prior_sd=prior_sd)
    if prior_weight is not None:
        numbers = dataclasses.replace(numbers, prior_weight=prior_weight)
    subject = _subject(
        release, numbers, is_model_prior=is_model_prior, has_tau=has_tau, is_diagonal=is_diagonal
    )
    findings = [
        *schedule_findings(release, window.phi, spacing=window.spacing),
        *release_findings(numbers, subject),
        *released_curvature_findings(release, phi=window.phi, noisy_gradient=window.noisy_gradient),
    ]
    return Diagnostics(
        table=_table(numbers, release),
        findings=tuple(sorted(findings, key=lambda finding: finding.severity, reverse=True)),
        not_checked=_not_checked(release, window, numbers),
        burn_in=window.burn_in,
        num_kept=numbers.num_kept,
    )


def _subject(
    release: Release,
    numbers: WindowNumbers,
    *,
    is_model_prior: bool,
    has_tau: bool,
    is_diagonal: bool,
) -> Subject:
    """Tell the checks which coordinates are locations, and how wide the guide is about them."""
    size, description, known = release.dimension, release.description, release.curvature
    guide_sd = np.zeros(size)
    is_location = np.ones(size, dtype=bool)
    if description is not None:
        count = len(description.names)
        is_location = np.arange(size) < count
        center = release.final_phi if release.sums is None else release.sums.phi_bar
        guide_sd[:count] = description.guide.standard_deviation(center)
    return Subject(
        labels=release.phi_labels,
        is_location=is_location,
        guide_sd=guide_sd,
        is_released=np.arange(size) < (0 if is_diagonal or known is None else len(known)),
        is_diagonal=is_diagonal,
        has_tau=has_tau,
        is_model_prior=is_model_prior,
    )


def _not_checked(release: Release, window: ReleaseWindow, numbers: WindowNumbers) -> tuple[str, ...]:
    """Say which checks this release does not allow."""
    lines = []
    if window.phi is None:
        lines.append(
            "linearity, autocorrelation and cross-curvature need the steps, and this release keeps sums"
            + (
                "."
                if window.is_plain
                else "; stationarity does too, since its steps had a box or early_steps."
            )
        )
    elif not np.isfinite(numbers.cross).all() and release.dimension > 1:
        lines.append(f"cross-curvature is not checked among {release.dimension:,} coordinates.")
    if np.isnan(numbers.step).any():
        lines.append("the step size needs learning_rate, and this release has none.")
    if window.phi is not None and window.spacing > 1:
        lines.append(
            f"the release keeps each {window.spacing}th step: autocorrelation is that of residuals "
            f"{window.spacing} steps apart."
        )
    return tuple(lines)


def _table(numbers: WindowNumbers, release: Release) -> pd.DataFrame:
    """Return the numbers, one row a coordinate."""
    labels = np.array(release.phi_labels, dtype=object)
    with np.errstate(divide="ignore", invalid="ignore"):
        relaxation_steps = np.where(numbers.step > 0, 1.0 / numbers.step, np.inf)
    columns = {
        "step": numbers.step,
        "relaxation_steps": np.where(np.isnan(numbers.step), np.nan, relaxation_steps),
        "relaxation_times": numbers.relaxation_times,
        "drift": numbers.drift,
        "start": numbers.start,
        "quadratic": numbers.quadratic,
        "variance_ratio": numbers.variance_ratio,
        "autocorrelation": numbers.autocorrelation,
        "cross": numbers.cross,
        "cross_with": np.where(numbers.cross_with >= 0, labels[numbers.cross_with], ""),
        "prior_weight": numbers.prior_weight,
    }
    return pd.DataFrame(columns, index=pd.Index(labels, name="coordinate"))
