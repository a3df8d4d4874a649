"""nadpvi summary: what a file holds, guarantee first."""

from pathlib import Path
from typing import Annotated, Any

import typer

from nadpvi.cli import options
from nadpvi.cli.console import print_frame, print_json, print_text, warnings_as_lines
from nadpvi.cli.wording import in_flags
from nadpvi.containers.posterior import PROMISE, Posterior
from nadpvi.containers.release import Release
from nadpvi.containers.storage import file_kind
from nadpvi.diagnostics.findings import Finding
from nadpvi.diagnostics.release import Diagnostics, diagnose
from nadpvi.errors import ArgumentError, FileError

__all__ = ["print_posterior", "summary"]

_CAVEAT = (
    "Curvature is taken as diagonal: intervals of correlated coefficients, one-hot ones above all, are too "
    "narrow; see infer --method dense."
)
_FORMATS = {"mean": ".3f", "sd": ".3f", "ess_bulk": ".0f", "ess_tail": ".0f", "r_hat": ".3f"}


def summary(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A release or a posterior.")],
    probability: Annotated[
        float, typer.Option("--probability", help="Content of the equal-tailed interval.")
    ] = 0.9,
    json: options.Json = False,
) -> None:
    """Show what a release or posterior FILE holds.

    Its guarantee first, then its settings or its parameters, and what the checks found.

    Example: nadpvi summary posterior.nc
    """
    with warnings_as_lines():
        if file_kind(file) == "release":
            release = Release.load(file)
            _account(release, file)
            print_release(release, as_json=json)
        else:
            posterior = Posterior.load(file)
            _account(posterior, file)
            print_posterior(posterior, as_json=json, probability=probability)


def _account(made: Release | Posterior, file: Path) -> None:
    """Account a file's guarantee in full before it is printed, or raise `FileError`."""
    try:
        made.check_guarantee()
    except ArgumentError as error:
        raise FileError(f"{file} is damaged or edited: {error}") from error


def print_release(release: Release, *, as_json: bool) -> None:
    """Print a release's guarantee and settings."""
    facts: dict[str, Any] = {
        **_steps(release),
        "coordinates": release.dimension,
        "noise_multiplier": release.noise_multiplier,
        "clip_norm": release.clip_norm,
        "sampling_rate": release.sampling_rate,
    }
    found = _diagnosed(release)
    if as_json:
        guarantee = None if release.guarantee is None else release.guarantee.to_dict()
        print_json(
            {
                "guarantee": guarantee,
                **facts,
                "versions": release.versions,
                "diagnostics": found if isinstance(found, str) else found.to_dict(),
            }
        )
        return
    print_text("No guarantee on record." if release.guarantee is None else release.guarantee.sentence())
    for name, value in facts.items():
        print_text(f"{name}: {value if isinstance(value, str | int) else format(value, 'g')}")
    if isinstance(found, str):
        print_text(f"diagnostics: none, {in_flags(found)}")
        return
    _print_findings(found.findings)
    for line in found.not_checked:
        print_text(f"not checked: {in_flags(line)}")


def _steps(release: Release) -> dict[str, int | str]:
    """Return how many steps were taken, where that is known, and what of them is in a release."""
    taken = None if release.guarantee is None else release.guarantee.num_steps
    if release.sums is not None:
        facts: dict[str, int | str] = {} if taken is None else {"steps": taken}
        return facts | {"keeps": "sums", "window_steps": release.sums.num_steps}
    if taken is None or taken == release.num_steps:
        return {"steps": release.num_steps, "keeps": "trace"}
    return {"steps": taken, "keeps": "trace", "kept_steps": release.num_steps}


def print_posterior(posterior: Posterior, *, as_json: bool, probability: float = 0.9) -> None:
    """Print a posterior's guarantee, parameter table and sampler health."""
    table = posterior.summary(probability=probability)
    divergences = posterior.num_divergences
    interval = f"{100 * probability:g} % equal-tailed interval"
    if as_json:
        guarantee = None if posterior.guarantee is None else posterior.guarantee.to_dict()
        rows = [{"parameter": label, **row} for label, row in table.to_dict(orient="index").items()]
        print_json(
            {
                "guarantee": guarantee,
                "interval": {"kind": "equal-tailed", "probability": probability},
                "divergences": divergences,
                "parameters": rows,
                "method": posterior.settings.get("method"),
                "findings": [finding.to_dict() for finding in posterior.findings],
                "settings": posterior.settings,
            }
        )
        return
    if posterior.guarantee is not None:
        print_text(posterior.guarantee.sentence())
    elif PROMISE in posterior.settings:
        print_text(str(posterior.settings[PROMISE]))
    print_text(f"method: {posterior.settings.get('method')}")
    if "clipping" in posterior.settings:
        print_text("clipping: its bias was taken out by the model's own likelihood (correct_clipping).")
    formats = {name: _FORMATS.get(name, ".3f") for name in table.columns}
    if posterior.settings.get("curvature") == "diagonal" and len(table) > 1:
        print_text(_CAVEAT)
    print_frame(table, title=f"Posterior: mean, sd, {interval}, ESS, R-hat", formats=formats)
    if divergences is not None:
        sizes = posterior.groups["posterior"].sizes
        print_text(
            f"divergences: {divergences} of {sizes['chain'] * sizes['draw']} draws; "
            f"engine: {posterior.settings.get('engine')}"
        )
    if "diagnostics" in posterior.settings:
        _print_findings(posterior.findings)


def _diagnosed(release: Release) -> Diagnostics | str:
    """Return the diagnostics of a release, or why there can be none."""
    try:
        return diagnose(release)
    except ArgumentError as error:
        return str(error)


def _print_findings(findings: tuple[Finding, ...]) -> None:
    """Print what the checks found, a line each: about parameters outside the table as well."""
    for finding in findings:
        print_text(f"{finding.severity}: {in_flags(finding.sentence())}")
    if not findings:
        print_text("diagnostics: nothing found.")
