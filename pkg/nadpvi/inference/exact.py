"""The exact method: quadrature on the collapsed density; independent draws, or the marginals themselves.

Coordinates are independent given the trace. phi_star is integrated out in closed form; what remains, one
density in v or in (v, tau), is integrated numerically to an estimated relative error of 1e-6 in total mass.
How draws are made of it, and how close they are, says `nadpvi.gradient_model.quadrature.draws`.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nadpvi.checks import check_count, check_probability
from nadpvi.engines.base import check_storage
from nadpvi.errors import ArgumentError, InferenceWarning
from nadpvi.gradient_model import GradientModel
from nadpvi.gradient_model.mode import find_modes
from nadpvi.gradient_model.quadrature.columns import make_columns
from nadpvi.gradient_model.quadrature.draws import DrawArrays, draw_group, fill_random
from nadpvi.gradient_model.quadrature.groups import Quadrature
from nadpvi.gradient_model.quadrature.integrate import MASS_TOLERANCE, integrate
from nadpvi.gradient_model.quadrature.layout import has_density, make_landmarks
from nadpvi.gradient_model.quadrature.moments import (
    Marginal,
    curvature_marginal,
    phi_star_marginal,
    tau_marginal,
)
from nadpvi.inference.draws import PostProcessingDraws, seed_sequence

__all__ = ["ExactMarginals", "MarginalTable", "exact_marginals", "phi_star_moments", "sample_exact"]

FloatArray = NDArray[np.float64]

# Coordinates prepared together, and numbers drawn between two preparations.
_CHUNK = 512
_CHUNK_DRAWS = 1 << 22
_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MarginalTable:
    """One variable's marginal posterior, coordinate by coordinate.

    Attributes
    ----------
    mean, sd : ndarray, shape (D,)
    quantiles : ndarray, shape (Q, D)
        At the probabilities asked for.
    grid, density : ndarray, shape (G, D)
        Ascending points and the density there.
    """

    mean: FloatArray
    sd: FloatArray
    quantiles: FloatArray
    grid: FloatArray
    density: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExactMarginals:
    """Marginal posteriors of the post-processing model, by quadrature.

    Attributes
    ----------
    phi_star, curvature : MarginalTable
        In units of phi, and of gradient over phi.
    tau : MarginalTable or None
        In units of the summed gradient; None where tau is fixed at 0.
    probabilities : ndarray, shape (Q,)
        What the quantiles belong to.
    log_evidence : ndarray, shape (D,)
        Log density of the window's gradients under the model, all parameters integrated out.
    error : ndarray, shape (D,)
        Estimated error of the total mass, relative to it.
    phi_labels : tuple of str
        Names of the D coordinates.
    """

    phi_star: MarginalTable
    curvature: MarginalTable
    tau: MarginalTable | None
    probabilities: FloatArray
    log_evidence: FloatArray
    error: FloatArray
    phi_labels: tuple[str, ...]


def sample_exact(
    model: GradientModel, *, draws: int, chains: int, seed: int | np.random.SeedSequence
) -> PostProcessingDraws:
    """Return independent draws of (phi_star, curvature[, tau]) given the trace, without Stan.

    Parameters
    ----------
    model : GradientModel
    draws, chains : int
        At least 1 each. Chains are a way to arrange the draws: all of them are independent.
    seed : int or SeedSequence
        Non-negative. A SeedSequence is spawned from, so a second call with the same object gives other draws.

    Raises
    ------
    ArgumentError
        If a setting is out of range, or a coordinate's numbers are too extreme to be integrated; it is named.

    Warns
    -----
    InferenceWarning
        If the quadrature of some coordinates cannot be brought below an error of 1e-6; they are named.
    """
    num_draws, num_chains = check_count("draws", draws), check_count("chains", chains)
    vectors = 3 if model.tau_prior_scale is None else 4
    check_storage(chains=num_chains, draws=num_draws, values_per_draw=vectors * model.num_parameters)
    total = num_chains * num_draws
    streams = tuple(np.random.Generator(np.random.SFC64(child)) for child in seed_sequence(seed).spawn(4))
    full, empty = (model.num_parameters, total), (model.num_parameters, 0)
    drawn = DrawArrays(*(np.empty(full if i < vectors else empty) for i in range(4)))
    errors = np.zeros(model.num_parameters)
    for part, found in _integrated(model, chunk=max(1, min(_CHUNK, _CHUNK_DRAWS // total))):
        _check_found(model, part, found)
        fill_random(streams, drawn.take(part))
        for group in found:
            draw_group(group, drawn)
            errors[group.places] = group.error
    drawn.phi_star[...] += model.sums.phi_bar[:, None]
    _warn_of_error(model, errors)
    arranged = [np.moveaxis(value.reshape(-1, num_chains, num_draws), 0, 2) for value in drawn[:vectors]]
    return PostProcessingDraws(
        phi_star=arranged[0],
        curvature=arranged[1],
        v=arranged[2],
        tau=arranged[3] if vectors == 4 else None,
        sample_stats={},
        engine_name="quadrature in NumPy",
        engine_version=np.__version__,
    )


def exact_marginals(
    model: GradientModel, *, probabilities: Sequence[float] = (0.05, 0.5, 0.95), grid_size: int = 101
) -> ExactMarginals:
    """Return the marginal posteriors themselves: moments, quantiles and densities, without sampling.

    Parameters
    ----------
    model : GradientModel
        From `nadpvi.gradient_model.make_gradient_model`.
    probabilities : sequence of float
        Each in (0, 1); may be empty. Quantiles of phi_star, a mixture, cost more than all the rest.
    grid_size : int
        Points of each density, at least 0. For phi_star they are uniform over 4 sds to either side, for the
        others at quantiles of uniform normal scores over [-4, 4].

    Raises
    ------
    ArgumentError
        If a setting is out of range, or a coordinate's numbers are too extreme to be integrated; it is named.

    Warns
    -----
    InferenceWarning
        If the quadrature of some coordinates cannot be brought below an error of 1e-6; they are named.

    Examples
    --------
    >>> from nadpvi.gradient_model import GradientModel, TraceSums
    >>> one = np.ones(1)
    >>> sums = TraceSums(num_steps=50, phi_bar=one, g_bar=0 * one, s_pp=one, s_gp=8 * one, s_gg=110 * one)
    >>> model = GradientModel(
    ...     sums=sums, sampling_rate=0.1, noise_std=one, phi_star_prior_mean=one, phi_star_prior_sd=one,
    ...     v_prior_mean=80 * one, v_prior_sd=10 * one, tau_prior_scale=None, phi_labels=("mu",),
    ... )
    >>> found = exact_marginals(model)
    >>> found.phi_star.mean.round(3).item(), found.phi_star.sd.round(3).item()
    (1.0, 0.018)
    >>> found.curvature.mean.round(1).item(), bool(found.error[0] < 1e-6)
    (79.4, True)
    """
    if isinstance(grid_size, bool) or not isinstance(grid_size, int | np.integer) or grid_size < 0:
        raise ArgumentError(f"grid_size must be a whole number of at least 0 (got {grid_size!r}).")
    levels = np.array([check_probability("probabilities", p) for p in probabilities], dtype=np.float64)
    makers = [phi_star_marginal, curvature_marginal]
    if model.tau_prior_scale is not None:
        makers.append(tau_marginal)
    size = model.num_parameters
    log_evidence, errors = np.empty(size), np.empty(size)
    shapes = ((size,), (size,), (size, levels.size), (size, grid_size), (size, grid_size))
    tables = [Marginal(*(np.empty(shape) for shape in shapes)) for _ in makers]
    for part, found in _integrated(model, chunk=_CHUNK):
        _check_found(model, part, found)
        for group in found:
            log_evidence[group.places] = group.log_reference + np.log(group.mass)
            errors[group.places] = group.error
            for table, make in zip(tables, makers, strict=True):
                made = make(group, probabilities=levels, grid_size=int(grid_size))
                for whole, some in zip(table, made, strict=True):
                    whole[group.places] = some
    _warn_of_error(model, errors)
    return ExactMarginals(
        phi_star=_table(tables[0], model.sums.phi_bar),
        curvature=_table(tables[1], None),
        tau=None if model.tau_prior_scale is None else _table(tables[2], None),
        probabilities=levels,
        log_evidence=log_evidence,
        error=errors,
        phi_labels=model.phi_labels,
    )


def phi_star_moments(model: GradientModel) -> tuple[FloatArray, FloatArray]:
    """Return mean and sd of phi_star's marginal posterior, shape (D,); NaN where it cannot be integrated.

    Those of `exact_marginals`, for comparing another method with.
    """
    mean, sd = np.full((2, model.num_parameters), np.nan)
    nothing = np.empty(0)
    for _, found in _integrated(model, chunk=_CHUNK):
        for group in found:
            some = phi_star_marginal(group, probabilities=nothing, grid_size=0)
            mean[group.places], sd[group.places] = some.mean, some.sd
    return mean + model.sums.phi_bar, sd


def _table(marginal: Marginal, shift: FloatArray | None) -> MarginalTable:
    """Return a marginal with coordinates last, moved by `shift` (D,)."""
    by = 0.0 if shift is None else shift
    return MarginalTable(
        mean=marginal.mean + by,
        sd=marginal.sd,
        quantiles=marginal.quantiles.T + by,
        grid=marginal.grid.T + by,
        density=marginal.density.T,
    )


def _integrated(model: GradientModel, *, chunk: int) -> Iterator[tuple[slice, list[Quadrature]]]:
    """Yield the quadratures of `chunk` coordinates at a time, without those that cannot be integrated."""
    size = model.num_parameters
    for first in range(0, size, chunk):
        part = slice(first, min(first + chunk, size))
        some = model if part.stop - first == size else model.take(part)
        columns = make_columns(some)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # what overflows is left out
            landmarks = make_landmarks(columns, find_modes(some))
            sound = np.flatnonzero(has_density(columns, landmarks))
        if sound.size < columns.size:
            columns, landmarks = columns.take(sound), landmarks.take(sound)
        yield part, integrate(columns, landmarks, places=part.start + sound) if sound.size else []


def _check_found(model: GradientModel, part: slice, found: list[Quadrature]) -> None:
    """Raise for the first coordinate that could not be integrated at all."""
    places = np.concatenate([group.places for group in found]) if found else np.empty(0, dtype=np.intp)
    bad = np.setdiff1d(np.arange(part.start, part.stop), places)
    if bad.size:
        more = f" (and {bad.size - 1} more coordinates)" if bad.size > 1 else ""
        raise ArgumentError(
            f"the posterior of {model.phi_labels[bad[0]]!r}{more} has no density that floating point can "
            "integrate: its trace, noise and priors contradict each other too far; check the release's units."
        )


def _warn_of_error(model: GradientModel, errors: FloatArray) -> None:
    """Name the coordinates whose mass is not known to 1e-6."""
    bad = np.flatnonzero(~(errors <= MASS_TOLERANCE))
    if bad.size:
        names = ", ".join(repr(model.phi_labels[i]) for i in bad[:_NAMES_SHOWN])
        more = f" and {bad.size - _NAMES_SHOWN} more" if bad.size > _NAMES_SHOWN else ""
        warnings.warn(
            f"the quadrature of {names}{more} has a relative error of up to {errors[bad].max():.1e} where "
            f"{MASS_TOLERANCE:.0e} is wanted: compare with method='nuts'.",
            InferenceWarning,
            stacklevel=3,
        )
