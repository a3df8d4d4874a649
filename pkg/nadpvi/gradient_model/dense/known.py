"""What a release lets one know of its dense curvature beforehand: pattern, own precision, released matrix."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nadpvi.columns import BinaryColumn, CategoricalColumn, OrderedColumn
from nadpvi.description import ModelDescription
from nadpvi.errors import ArgumentError
from nadpvi.gradient_model.certain_precision import certain_precision
from nadpvi.gradient_model.dense.prior import DensePrior, Group, GroupKind, MatrixEstimate
from nadpvi.models.base import LinearModel

__all__ = ["Described", "MAX_SIZE", "make_dense_prior"]

FloatArray = NDArray[np.float64]

# Clipping shrinks the slopes that a trace follows, and weights move with the iterate.
_RELEASED_LOG_SCALE_STD = 0.2

MAX_SIZE = 200  # coordinates: an evaluation of the density costs a multiple of the cube of their number


class Described(Protocol):
    """What the prior reads from a release."""

    @property
    def description(self) -> ModelDescription | None:
        """Model, schema and guide, where known."""

    @property
    def phi(self) -> FloatArray:
        """Iterates, shape (T, D)."""

    @property
    def phi_labels(self) -> tuple[str, ...]:
        """Names of the D coordinates."""

    @property
    def curvature(self) -> FloatArray | None:
        """An estimate of the records' part of the curvature, shape (M, M), where one was released."""

    @property
    def curvature_std(self) -> FloatArray | None:
        """Sd of the noise in each of its entries, shape (M, M)."""


def _design_groups(description: ModelDescription) -> tuple[Group, ...]:
    """Return the groups of a generalised linear model's coefficients; none where they say nothing.

    Without an intercept nothing is known of the sum of the weights, so that a number with another zero than
    its lower bound is not the image of a share. A formula's terms share columns, steps share
    levels, and neither have a pattern.
    """
    design = description.design
    if design.terms is not None:
        return ()
    if not design.intercept and min(design.feature_bounds[0]) < 0.0:
        return ()
    groups = [Group(kind=GroupKind.CONSTANT, start=0)] if design.intercept else []
    at = len(groups)
    for name in design.predictors:
        column = design.schema[name]
        if isinstance(column, CategoricalColumn):
            group = Group(kind=GroupKind.LEVELS, start=at, size=len(column.levels))
        elif isinstance(column, BinaryColumn):
            group = Group(kind=GroupKind.BINARY, start=at)
        elif isinstance(column, OrderedColumn):
            if column.coding == "steps":
                return ()
            group = Group(kind=GroupKind.NUMBER, start=at)
        else:
            low, high = column.feature_range
            group = Group(kind=GroupKind.NUMBER, start=at, low=low, high=high)
        groups.append(group)
        at += group.size
    return tuple(groups)


def make_dense_prior(
    release: Described,
    *,
    use_schema: bool = True,
    use_released: bool = True,
    num_directions: int = 0,
    center: FloatArray | None = None,
) -> DensePrior:
    """Return the prior of a release's curvature over its first M coordinates; the others do not interact.

    With a description these are the guide's K locations: a scale's curvature is diagonal to good accuracy. Of
    a model with one linear predictor they are the coefficients; its further parameters interact little with
    them at the optimum. The pattern then follows from the schema. Without a description all D coordinates may
    interact, and nothing is known of any.

    Parameters
    ----------
    release : Described
    use_schema : bool
        Whether to use the schema's pattern where there is one.
    use_released : bool
        Whether to use a curvature that was released beside the trace.
    num_directions : int
        As in `DensePrior`; 0 for its default.
    center : ndarray, shape (D,), optional
        Where in phi a prior's precision is taken that depends on further parameters; the mean of the second
        half of the iterates when omitted.

    Raises
    ------
    ArgumentError
        If more than 200 coordinates may interact, or a released curvature has another size: without a
        description it may be smaller, and says nothing of the coordinates that it leaves out.
    """
    description = release.description
    size = len(release.phi_labels)
    precision = np.zeros(size)
    groups: tuple[Group, ...] = ()
    if description is not None:
        size = len(description.names)
        precision = np.zeros(size)
        if isinstance(description.model, LinearModel):
            if center is None:
                center = release.phi[release.phi.shape[0] // 2 :].mean(axis=0)
            precision = certain_precision(description, center=center)
            num_features = description.design.num_features
            if size - description.model.num_extras == num_features:
                precision = precision[:num_features]
                groups = _design_groups(description) if use_schema else ()
    if precision.size > MAX_SIZE:
        raise ArgumentError(
            f"method='dense' handles at most {MAX_SIZE} coordinates that may interact (here "
            f"{precision.size}): use method='exact'."
        )
    return DensePrior(
        precision=precision,
        groups=groups,
        num_directions=num_directions,
        estimate=_released_estimate(release, size=precision.size) if use_released else None,
    )


def _released_estimate(release: Described, *, size: int) -> MatrixEstimate | None:
    """Return the curvature that was released beside the trace, if there is one, of the dense block's size."""
    if release.curvature is None or release.curvature_std is None:
        return None
    given = release.curvature.shape[0]
    if given > size or (given < size and release.description is not None):
        raise ArgumentError(
            f"curvature has {given} rows, and the coordinates that may interact are the first {size}: "
            "release one of those."
        )
    matrix, noise_std = np.zeros((size, size)), np.full((size, size), np.inf)
    matrix[:given, :given], noise_std[:given, :given] = release.curvature, release.curvature_std
    return MatrixEstimate(matrix=matrix, noise_std=noise_std, log_scale_std=_RELEASED_LOG_SCALE_STD)
