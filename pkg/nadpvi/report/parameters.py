"""The report's part about parameters: their table, the forest plot, and whose uncertainty it is."""

from typing import NamedTuple

import pandas as pd

from nadpvi.containers.posterior_like import SPREAD, PosteriorLike
from nadpvi.errors import ArgumentError
from nadpvi.figures import MOST_ROWS, forest_figure
from nadpvi.report.parts import Cells, Picture, cells_of, picture
from nadpvi.uncertainty import uncertainty_shares

__all__ = ["ParametersPart", "parameters_part", "shares_of", "summary_blocks"]

_PROBABILITY = 0.9
_HEADERS = {"ess_bulk": "bulk ESS", "ess_tail": "tail ESS", "r_hat": "R-hat"}


def shares_of(posterior: PosteriorLike) -> pd.DataFrame:
    """Return `nadpvi.uncertainty.uncertainty_shares` of a posterior.

    Raises
    ------
    ArgumentError
        If there is no model with a guide, or no draws of phi_star.
    """
    description, draws = posterior.description, posterior.groups["posterior"]
    if description is None:
        raise ArgumentError(
            "this posterior has no model, only phi_star: all of its uncertainty is about the optimum of the "
            "run, and none of it is a share of the data's."
        )
    if "phi_star" not in draws:
        raise ArgumentError(
            f"this posterior (method {posterior.settings.get('method')}) has no draws of phi_star, so its "
            "uncertainty cannot be split."
        )
    is_guide = posterior.settings.get(SPREAD) is None
    return uncertainty_shares(
        description.guide,
        draws["phi_star"].to_numpy(),
        labels=description.names,
        theta=None if is_guide else posterior.theta(),
    )


def summary_blocks(posterior: PosteriorLike, *, probability: float = 0.9) -> dict[str, pd.DataFrame]:
    """Return `Posterior.summary`, cut into the model's parameters."""
    table = posterior.summary(probability=probability)
    if posterior.description is None:
        return {"phi_star": table}
    blocks, start = {}, 0
    for block in posterior.description.parameters:
        stop = start + len(block.entry_labels)
        blocks[block.name] = table.iloc[start:stop]
        start = stop
    return blocks


class ParametersPart(NamedTuple):
    """What the page says about parameters.

    Attributes
    ----------
    interval : str
        What the interval is, in words.
    table : Cells
        `Posterior.summary`.
    forest : Picture
    shares : Cells or None
        Where the uncertainty comes from; None where it cannot be split, for `reason`.
    reason : str
    overall : str
        The shares in one sentence; "" without them.
    prior_is_in : bool
        Whether a prior of phi_star that is the model's own is part of what is called privacy's.
    is_diagonal : bool
        Whether curvature was taken as diagonal though several parameters may depend on each other.
    """

    interval: str
    table: Cells
    forest: Picture
    shares: Cells | None
    reason: str
    overall: str
    prior_is_in: bool
    is_diagonal: bool


def parameters_part(posterior: PosteriorLike) -> ParametersPart:
    """Return the table of parameters, the forest plot, and the shares of uncertainty."""
    blocks = summary_blocks(posterior, probability=_PROBABILITY)
    table = pd.concat(blocks.values())
    shares, reason = None, ""
    try:
        shares = shares_of(posterior)
    except ArgumentError as error:
        reason = str(error)
    figure = forest_figure(blocks, shares=shares)
    cut = f" The first {MOST_ROWS} of {len(table):,} are drawn." if len(table) > MOST_ROWS else ""
    alt = (
        f"Forest plot of {min(len(table), MOST_ROWS)} parameters: mean and 90 % interval of each"
        + (", with bars for the shares of its variance." if shares is not None else ".")
        + " The same numbers are in the tables."
    )
    settings = posterior.settings
    return ParametersPart(
        interval=f"{100 * _PROBABILITY:g} % equal-tailed interval",
        table=cells_of(
            table, headers=[_HEADERS.get(str(n), str(n)) for n in table.columns], first="parameter"
        ),
        forest=picture(figure, name="forest", alt=alt, caption=cut.strip()),
        shares=None if shares is None else _share_cells(shares),
        reason=reason,
        overall="" if shares is None else _overall(shares),
        prior_is_in=settings.get("phi_star_prior") == "model",
        is_diagonal=settings.get("curvature") == "diagonal" and len(table) > 1,
    )


def _share_cells(shares: pd.DataFrame) -> Cells:
    """Return the table of shares, as percentages."""
    shown = pd.DataFrame(
        {
            "sd": shares["sd"],
            "of the data": shares["sd_data"],
            "of privacy": shares["sd_privacy"],
            "share of the data": [f"{100 * value:.0f} %" for value in shares["share_data"]],
            "share of privacy": [f"{100 * value:.0f} %" for value in shares["share_privacy"]],
        },
        index=shares.index,
    )
    return cells_of(shown, first="parameter")


def _overall(shares: pd.DataFrame) -> str:
    """Return where most of the uncertainty comes from, in one sentence."""
    middle = float(shares["share_privacy"].median())
    most = int((shares["share_privacy"] > 0.5).sum())
    return (
        f"For {most} of {len(shares)} parameters more than half of the variance came with the privacy; "
        f"the median share is {100 * middle:.0f} %."
    )
