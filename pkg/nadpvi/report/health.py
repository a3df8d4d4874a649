"""The report's part about trust in the intervals: each check as a question with its verdict and remedy."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nadpvi.containers.posterior_like import PosteriorLike
from nadpvi.diagnostics.findings import Finding
from nadpvi.inference.methods import METHODS
from nadpvi.markup import shown_number

__all__ = ["HealthPart", "Verdict", "health_part"]

# A question in words, and the checks that answer it.
_OF_RELEASE = (
    ("Are the steps small enough, and are there enough of them?", ("step_size", "relaxation")),
    ("Had the run settled when the window began?", ("stationarity", "early_steps", "box")),
    ("Are the gradients a straight line in the iterates?", ("linearity", "autocorrelation")),
    ("Is the noise as large as it was said to be?", ("claimed_noise", "extra_variance")),
    ("Is the curvature what the method takes it for?", ("cross_curvature", "released_curvature")),
    ("Was more learned than the prior said?", ("prior_weight",)),
)
_OF_CHAINS = (
    ("Did the sampler explore freely?", ("divergences", "tree_depth", "energy")),
    ("Do the chains agree?", ("r_hat", "chains")),
    ("Are there enough effective draws?", ("effective_draws",)),
)
_OF_LAPLACE = (("Is a Gaussian a fair picture of the posterior?", ("laplace_phi_star", "laplace_tau")),)
_WORST = {"warning": "doubt", "note": "note"}


class Verdict(NamedTuple):
    """A question and its verdict: "passed", "note" or "doubt"."""

    question: str
    verdict: str


class HealthPart(NamedTuple):
    """What the page says about trust in the intervals.

    Attributes
    ----------
    headline : str
    has_doubts : bool
    verdicts : tuple of Verdict
        Empty where no checks are on record.
    findings : tuple of Finding
        All of them, warnings first.
    not_checked : tuple of str
    sampler : tuple of (str, str)
        The sampler's own numbers.
    """

    headline: str
    has_doubts: bool
    verdicts: tuple[Verdict, ...]
    findings: tuple[Finding, ...]
    not_checked: tuple[str, ...]
    sampler: tuple[tuple[str, str], ...]


def health_part(posterior: PosteriorLike) -> HealthPart:
    """Return the verdicts that a posterior has kept of its release and its draws."""
    kept = posterior.settings.get("diagnostics")
    sampler = _sampler(posterior)
    if not isinstance(kept, dict):
        return HealthPart(
            "No checks are on record for this method.",
            has_doubts=False,
            verdicts=(),
            findings=(),
            not_checked=(),
            sampler=sampler,
        )
    findings = posterior.findings
    method = METHODS.get(str(posterior.settings.get("method")))
    groups = [*_OF_RELEASE, *(_OF_CHAINS if method is not None and method.has_chains else ())]
    if posterior.settings.get("method") == "laplace":
        groups += _OF_LAPLACE
    verdicts = [_verdict(question, checks, findings) for question, checks in groups]
    told = {check for _, checks in groups for check in checks}
    rest = tuple(finding for finding in findings if finding.check not in told)
    if rest:
        verdicts.append(_verdict("Anything else?", [finding.check for finding in rest], findings))
    doubts = sum(finding.severity == "warning" for finding in findings)
    return HealthPart(
        headline=_headline(doubts, notes=len(findings) - doubts),
        has_doubts=doubts > 0,
        verdicts=tuple(verdicts),
        findings=tuple(sorted(findings, key=lambda found: found.severity, reverse=True)),
        not_checked=tuple(str(line) for line in kept.get("not_checked", ())),
        sampler=sampler,
    )


def _headline(doubts: int, *, notes: int) -> str:
    """Return the verdict on all checks together."""
    noted = {0: "", 1: " One thing was noted."}.get(notes, f" {notes} things were noted.")
    if doubts:
        things, what = ("One check puts", "it") if doubts == 1 else (f"{doubts} checks put", "them")
        return f"{things} the intervals in doubt: read {what} before the numbers are used.{noted}"
    return f"No check puts the intervals in doubt.{noted}"


def _verdict(question: str, checks: Sequence[str], findings: Sequence[Finding]) -> Verdict:
    """Return the worst that some checks found."""
    found = tuple(finding for finding in findings if finding.check in checks)
    severities = {finding.severity for finding in found}
    worst = next((word for severity, word in _WORST.items() if severity in severities), "passed")
    return Verdict(question, worst)


def _sampler(posterior: PosteriorLike) -> tuple[tuple[str, str], ...]:
    """Return the sampler's numbers over the parameters of the table."""
    sizes = posterior.groups["posterior"].sizes
    facts: list[tuple[str, Any]] = [
        ("method", posterior.settings.get("method", "not on record")),
        ("chains", int(sizes["chain"])),
        ("draws a chain", int(sizes["draw"])),
    ]
    if posterior.num_divergences is not None:
        facts.append(("divergent transitions", posterior.num_divergences))
    table = posterior.summary()
    for label, column, worst in (
        ("largest R-hat", "r_hat", np.nanmax),
        ("least bulk ESS", "ess_bulk", np.nanmin),
        ("least tail ESS", "ess_tail", np.nanmin),
    ):
        values = table[column].to_numpy()
        if np.isfinite(values).any():
            facts.append((label, shown_number(float(worst(values)), name=column)))
    return tuple((name, str(value)) for name, value in facts)
