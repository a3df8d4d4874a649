"""Per-record gradients of models with linear predictors: matrix products only. Private side.

With r_j(s) the loss derivative in predictor j at draw s, a record's gradient in theta_jf(s) is r_j(s) x_f.
The guide turns it into ``x_f * mean_s(r_j(s) base(s)) * factor`` for each coordinate of phi that moves
theta_jf (see `Factors`). The means over draws are products of the (B, S) matrices r_j with small matrices.
Locations and weights, where the product with x has rank one a record, are not formed for norms and sums.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.guides import Guide
from nadpvi.guides.base import Factors
from nadpvi.models.base import LinearModel, RecordBatch
from nadpvi.private.batches import Workspace
from nadpvi.private.routes.linear_layout import LinearLayout, make_layout
from nadpvi.private.routes.rows import GradientFunction, Part, squared_lengths

__all__ = ["LinearGradients", "linear_route"]

Array = NDArray[np.float64]


class _Step(NamedTuple):
    """What of a step no record enters; minus one over S is in every matrix that averages over draws."""

    layout: LinearLayout
    factor: Array  # (D,), the guide's times the preconditioner
    locations: Array | None  # (J, F), the preconditioner of the locations; None where all are 1
    coefficients: Array  # (J, F, S)
    extras: Array  # (E, 1, S)
    average: Array  # (S,)
    scale_bases: Array  # (J, S, F)
    extra_bases: tuple[Array, ...]  # E matrices (S, number of coordinates)
    source_bases: Array | None  # (S, M); None for a guide without weights
    weight_squares: Array | None  # (J, F, M), squared factors of the weights, if there are any
    feature_factors: Array | None  # (J, F), of the weights, if a feature has one factor with all its sources


class LinearGradients(NamedTuple):
    """Gradients of B records under J predictors of F features, and E further parameters.

    Parameters
    ----------
    x : ndarray, shape (B, F)
        Features.
    location : ndarray, shape (J, B)
        Mean over draws of the loss derivative in each predictor.
    scale : ndarray, shape (J, B, F)
        The gradient in the scales of the coefficients.
    extras : ndarray, shape (B, number of coordinates that move the further parameters), or None
        The gradient in those, if there are any.
    sources : ndarray, shape (J, B, M), or None
        Mean over draws of derivative times source, for a guide with weights.
    step : _Step
        Places in phi and public factors.
    workspace : Workspace
        Holds the large arrays of a block.
    is_in_place : bool
        Whether features and scales may be overwritten in the end, being in the memory of a run.
    """

    x: Array
    location: Array
    scale: Array
    extras: Array | None
    sources: Array | None
    step: _Step
    workspace: Workspace
    is_in_place: bool

    def squared_norms(self) -> Array:
        """Return each record's squared norm, shape (B,)."""
        step = self.step
        norms = squared_lengths(self.x)
        if step.locations is None:
            norms *= (self.location**2).sum(axis=0) if len(self.location) > 1 else self.location[0] ** 2
        else:
            lengths = step.locations**2 @ (self.x**2).T
            norms = np.einsum("jb,jb,jb->b", self.location, self.location, lengths)
        for scale in self.scale:
            norms += squared_lengths(scale)
        if self.extras is not None:
            norms += squared_lengths(self.extras)
        if self.sources is not None and step.weight_squares is not None:
            squares = self.x**2
            for source, factor in zip(self.sources, step.weight_squares, strict=True):
                norms += np.einsum("bm,bm->b", squares @ factor, source**2)
        return norms

    def weighted_sum(self, weights: Array) -> Array:
        """Return the weighted sum, shape (D,)."""
        step, layout = self.step, self.step.layout
        total = np.empty(len(step.factor))
        location = (self.location * weights) @ self.x
        if step.locations is not None:
            location *= step.locations
        count, first = layout.num_coefficients, layout.num_params
        total[:count] = location.ravel()
        total[first : first + count] = (weights @ self.scale).ravel()
        if self.extras is not None:
            total[layout.extra_places] = weights @ self.extras
        if self.sources is not None:
            weighted = self.x.T * weights
            for source, block in zip(self.sources, layout.blocks, strict=True):
                products = weighted @ source
                total[block.places] = products[block.features, block.sources] * step.factor[block.places]
        return total

    def weighted_rows(self, weights: Array) -> Array:
        """Return the weighted rows, shape (B, D)."""
        rows = self.workspace.array("gradient rows", (len(self.x), len(self.step.factor)))
        for columns, part in self._replace(is_in_place=False).weighted_parts(weights):
            rows[:, columns] = part
        return rows

    def weighted_parts(self, weights: Array) -> list[Part]:
        """Return the weighted rows: the guide's weights, the extras, the scales, and the locations."""
        step, layout = self.step, self.step.layout
        x, scales = (self.x, self.scale) if self.is_in_place else (self.x.copy(), self.scale.copy())
        first, size = layout.num_params, layout.num_features
        parts = []
        if self.sources is not None:
            parts += self._weight_parts(self.sources * weights[:, None])
        if self.extras is not None:
            parts.append(Part(layout.extra_places, self.extras * weights[:, None]))
        for j, scale in enumerate(scales):
            scale *= weights[:, None]
            parts.append(Part(slice(first + j * size, first + (j + 1) * size), scale))
        located = self.workspace.array("gradient locations", (layout.num_predictors - 1, *x.shape))
        # The last predictor's take the place of the features, which nothing needs any more.
        for j, rows in enumerate([*located, x]):
            np.multiply(x, (weights * self.location[j])[:, None], out=rows)
            if step.locations is not None:
                rows *= step.locations[j]
            parts.append(Part(slice(j * size, (j + 1) * size), rows))
        return parts

    def _weight_parts(self, sources: Array) -> list[Part]:
        """Return the part of the guide's weights, given the sources times the records' weights."""
        step, parts = self.step, []
        for j, block in enumerate(step.layout.blocks):
            # A factor that a feature has with all its sources is multiplied in once.
            x = self.x if step.feature_factors is None else self.x * step.feature_factors[j]
            rows = self.workspace.array(f"gradient weights {j}", (len(x), len(block.places)))
            for start, stop, features, places in block.runs:
                part, known, source = rows[:, start:stop], x[:, features], sources[j, :, places]
                if known.shape[1] == 1:
                    np.einsum("bm,b->bm", source, known[:, 0], out=part)
                else:
                    np.einsum("bf,b->bf", known, source[:, 0], out=part)
                if step.feature_factors is None:
                    part *= step.factor[block.places[start:stop]]
            parts.append(Part(block.places, rows))
        return parts


def linear_route(
    model: LinearModel,
    *,
    guide: Guide,
    phi: Array,
    standard_normal: Array,
    preconditioner: Array,
    theta: Array | None = None,
    workspace: Workspace | None = None,
) -> GradientFunction:
    """Return gradients by products of the draws' residuals with features and with the guide's bases."""
    kept = Workspace() if workspace is None else workspace
    drawn = guide.draw(phi, standard_normal) if theta is None else theta
    factors = guide.factors(phi, standard_normal)

    @cache
    def step_for(num_features: int) -> _Step:
        layout = make_layout(
            guide, num_params=drawn.shape[1], num_features=num_features, num_extras=model.num_extras
        )
        return _make_step(layout, factors, theta=drawn, preconditioner=preconditioner)

    def gradients(batch: RecordBatch) -> LinearGradients:
        step = step_for(batch.x.shape[1])
        num_predictors, num_records = len(step.coefficients), len(batch.y)
        predictors = kept.array("predictors", (num_predictors, num_records, len(drawn)))
        for coefficients, predictor in zip(step.coefficients, predictors, strict=True):
            np.matmul(batch.x, coefficients, out=predictor)
        given = [*predictors, *step.extras] if step.extra_bases else predictors
        score = model.score(given, batch.y[:, None])
        known, others = score[:num_predictors], score[num_predictors:]
        scale = kept.array("gradient scales", (num_predictors, *batch.x.shape))
        np.matmul(known, step.scale_bases, out=scale)
        scale *= batch.x
        extras = [other @ bases for other, bases in zip(others, step.extra_bases, strict=True)]
        return LinearGradients(
            x=batch.x,
            location=known @ step.average,
            scale=scale,
            extras=np.concatenate(extras, axis=1) if extras else None,
            sources=None if step.source_bases is None else known @ step.source_bases,
            step=step,
            workspace=kept,
            is_in_place=workspace is not None,
        )

    return gradients


def _make_step(layout: LinearLayout, factors: Factors, *, theta: Array, preconditioner: Array) -> _Step:
    """Return the constants of a step."""
    num_draws, num_params = theta.shape
    count = layout.num_coefficients
    shape = (num_draws, layout.num_predictors, layout.num_features)
    averaging = factors.bases * (-1.0 / num_draws)
    factor = factors.factor * preconditioner
    own = averaging[:, 1 : 1 + count] * factor[num_params : num_params + count]
    located = preconditioner[:count]
    squares = by_feature = None
    if layout.blocks:
        squares = np.zeros((*shape[1:], factors.bases.shape[1] - 1 - num_params))
        by_feature = np.zeros(shape[1:])
        for j, block in enumerate(layout.blocks):
            squares[j, block.features, block.sources] = factor[block.places] ** 2
            by_feature[j, block.features] = factor[block.places]
        if not (preconditioner[2 * num_params :] == preconditioner[-1]).all():
            by_feature = None
    return _Step(
        layout=layout,
        factor=factor,
        locations=None if (located == 1.0).all() else located.reshape(shape[1:]),
        coefficients=np.ascontiguousarray(theta[:, :count].reshape(shape).transpose(1, 2, 0)),
        extras=theta[:, count:].T[:, None, :],
        average=averaging[:, 0],
        scale_bases=np.ascontiguousarray(own.reshape(shape).transpose(1, 0, 2)),
        extra_bases=tuple(
            averaging[:, bases] * factor[places]
            for places, bases in zip(layout.extras, layout.extra_bases, strict=True)
        ),
        source_bases=np.ascontiguousarray(averaging[:, 1 + num_params :]) if layout.blocks else None,
        weight_squares=squares,
        feature_factors=by_feature,
    )
