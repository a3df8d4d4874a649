"""The page itself: its parts put together, rendered with every text escaped, written whole or not at all."""

import os
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from nadpvi.containers.posterior_like import PosteriorLike
from nadpvi.containers.release import Release
from nadpvi.containers.storage import check_writable, write_bytes
from nadpvi.report.calibration import calibration_part
from nadpvi.report.guarantee import guarantee_part
from nadpvi.report.health import health_part
from nadpvi.report.parameters import parameters_part
from nadpvi.report.predictions import predictions_part
from nadpvi.report.prior import prior_part
from nadpvi.report.provenance import provenance_part
from nadpvi.report.trace import check_belongs, trace_part
from nadpvi.tables import TableLike

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["render_report", "write_report"]

_TITLE = "Posterior report"


def render_report(
    posterior: PosteriorLike, *, release: Release | None = None, table: TableLike | None = None
) -> str:
    """Return the page about a posterior as HTML; arguments and errors are those of `Posterior.report`.

    The same posterior gives the same page: it holds no date, no path and nothing drawn at random anew.
    """
    posterior.check_guarantee()
    if release is not None:
        check_belongs(posterior, release)
    return _template().render(
        title=_title(posterior),
        css=_text("report.css"),
        guarantee=guarantee_part(posterior),
        health=health_part(posterior),
        parameters=parameters_part(posterior),
        prior=prior_part(posterior),
        trace=None if release is None else trace_part(posterior, release),
        predictions=predictions_part(posterior),
        calibration=None if table is None else calibration_part(posterior, table),
        provenance=provenance_part(posterior, release),
    )


def write_report(
    posterior: PosteriorLike,
    path: str | os.PathLike[str],
    *,
    release: Release | None = None,
    table: TableLike | None = None,
    overwrite: bool = False,
) -> Path:
    """Write the page about a posterior and return its path; see `Posterior.report`."""
    check_writable(path, overwrite=overwrite)
    page = render_report(posterior, release=release, table=table)
    return write_bytes(page.encode("utf-8"), path, overwrite=overwrite)


def _title(posterior: PosteriorLike) -> str:
    """Return what the page is called: what was fitted."""
    description = posterior.description
    if description is None:
        return _TITLE
    kind = getattr(description.model, "name", description.model.kind).replace("_", " ")
    outcome = description.design.outcome
    return f"{_TITLE}: {kind}" + ("" if outcome is None else f" of {outcome}")


def _text(name: str) -> str:
    """Return a file that lies beside this module."""
    return files("nadpvi.report").joinpath("templates").joinpath(name).read_text("utf-8")


@cache
def _template() -> "Template":
    """Return the page's template; what it is given is escaped unless it is `Markup`."""
    from jinja2 import DictLoader, Environment, StrictUndefined

    names = ("report.html", "macros.html")
    environment = Environment(
        loader=DictLoader({name: _text(name) for name in names}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html")
