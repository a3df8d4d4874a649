"""Checks of what a run's own settings do to the window. Public side."""

import numpy as np
from numpy.typing import NDArray

from nadpvi.containers.release import Release
from nadpvi.diagnostics.findings import Finding, make_finding

__all__ = ["schedule_findings"]

FloatArray = NDArray[np.float64]

# Share of the window at the edge of a box from which the edge, and not the gradient, holds the iterates.
_EDGE_SHARE = 0.01


def schedule_findings(release: Release, phi: FloatArray | None, *, spacing: int) -> list[Finding]:
    """Return what the run's own settings do to the window: larger steps at its start, or a box.

    Parameters
    ----------
    release : Release
    phi : ndarray, shape (n, D), or None
        The window's iterates; None where only sums were kept.
    spacing : int
        Steps from one of them to the next.
    """
    config, labels = release.config, release.phi_labels
    if config is None or phi is None:
        return []
    everywhere = np.ones(release.dimension, dtype=bool)
    first_step = config.num_steps - 1 - (len(phi) - 1) * spacing
    late = np.full(release.dimension, float(config.early_steps - first_step))
    found = [
        make_finding(
            "early_steps",
            severity="warning",
            labels=labels,
            is_bad=everywhere & (late > 0),
            badness=late,
            value=late,
            threshold=0.0,
            message="the window begins {value} steps before early_steps end, in {who}",
            remedy=f"raise burn_in to {config.early_steps / config.num_steps:.2g} or more",
        )
    ]
    share = _share_at_edge(phi, release)
    found.append(
        make_finding(
            "box",
            severity="warning",
            labels=labels,
            is_bad=share > _EDGE_SHARE,
            badness=share,
            value=share,
            threshold=_EDGE_SHARE,
            message="the box holds the iterates of {who}: {percent} of the window lies at its edge, and more "
            "than a hundredth bends the line",
            remedy="widen box_mu and box_u, or lower learning_rate_constant",
        )
    )
    return [finding for finding in found if finding is not None]


def _share_at_edge(phi: FloatArray, release: Release) -> FloatArray:
    """Return which share of the window lies at the edge of the box, shape (D,)."""
    config, description = release.config, release.description
    share = np.zeros(release.dimension)
    if config is None or description is None:
        return share
    count = len(description.names)
    for box, part in ((config.box_mu, slice(0, count)), (config.box_u, slice(count, None))):
        if box is not None:
            share[part] = np.isin(phi[:, part], box).mean(axis=0)
    return share
