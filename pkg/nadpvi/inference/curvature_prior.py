"""What the prior of the curvature is for one release: public side."""

from nadpvi.containers.release import Release
from nadpvi.gradient_model.curvature_priors import resolve_curvature_prior

__all__ = ["curvature_prior_for"]


def curvature_prior_for(release: Release, choice: str) -> str:
    """Return what `choice` stands for with this release: "auto" is resolved, others stay as they are."""
    is_suggested = release.config is not None and release.config.suggested_for is not None
    return resolve_curvature_prior(choice, is_suggested=is_suggested, guide=release.guide)
