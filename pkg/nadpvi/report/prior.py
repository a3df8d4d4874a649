"""The report's part that sets each parameter's prior beside its posterior."""

from typing import NamedTuple

from nadpvi.containers.posterior_like import PosteriorLike
from nadpvi.figures import prior_figure
from nadpvi.prior_comparison import prior_against_posterior
from nadpvi.report.parts import Cells, Picture, cells_of, picture

__all__ = ["PriorPart", "prior_part"]

# Share of the prior's variance that must have gone for a parameter to count as learned.
_LEAST_LEARNED = 0.2


class PriorPart(NamedTuple):
    """The comparison as a table and a figure, and in a sentence."""

    sentence: str
    table: Cells
    curve: Picture


def prior_part(posterior: PosteriorLike) -> PriorPart | None:
    """Return prior against posterior, or None where there is no model."""
    description = posterior.description
    if description is None:
        return None
    table = prior_against_posterior(description, posterior.theta())
    little = int((table["learned"] < _LEAST_LEARNED).sum())
    sentence = (
        f"{little} of {len(table)} parameters have lost less than {100 * _LEAST_LEARNED:.0f} % of their "
        "prior's variance: about those, this posterior says little more than was believed before."
    )
    alt = f"Prior and posterior mean with two standard deviations of {len(table)} unconstrained parameters."
    return PriorPart(
        sentence=sentence,
        table=cells_of(
            table, headers=[str(name).replace("_", " ") for name in table.columns], first="parameter"
        ),
        curve=picture(prior_figure(table), name="prior", alt=alt),
    )
