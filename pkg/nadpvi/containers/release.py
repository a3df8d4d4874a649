"""The release: everything that leaves the private side, and nothing else.

A release holds the DP-SGD trace (each iterate and the noisy gradient computed there), the public settings
that produced it and the guarantee under which it was made. It never holds records, their number, unclipped
norms, losses, batch sizes or seeds.
"""

import dataclasses
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from nadpvi.config import DPVIConfig
from nadpvi.containers.arrays import foreign_fields
from nadpvi.containers.checksum import with_checksum
from nadpvi.containers.promise_checks import check_parts
from nadpvi.containers.release_checks import (
    check_coordinates,
    check_curvature,
    check_finite_steps,
)
from nadpvi.containers.release_file import PER_COORDINATE, load_release_file, release_dataset, release_fields
from nadpvi.containers.storage import package_versions, to_netcdf, write_bytes
from nadpvi.containers.trace_checks import check_claimed_noise
from nadpvi.description import ModelDescription
from nadpvi.errors import ArgumentError
from nadpvi.gradient_model.data import TraceSums
from nadpvi.guides import Guide
from nadpvi.markup import html_note, html_pairs
from nadpvi.privacy.budget import PrivacyBudget
from nadpvi.privacy.guarantee import Guarantee
from nadpvi.privacy.guarantee_check import check_accounted

__all__ = ["Release"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Release:
    """A DP-SGD trace with its public settings and its guarantee.

    Make one with `nadpvi.release`, `Release.from_arrays` or `Release.load`.

    Parameters
    ----------
    phi : ndarray, shape (T, D)
        ``phi[t]`` is the iterate at which gradient t was computed.
    noisy_gradient : ndarray, shape (T, D)
        Noisy sum of clipped loss gradients at ``phi[t]``, divided by the preconditioner, plus the public
        prior and entropy terms times the sampling rate.
    noise_multiplier : float
        sigma: the noise's sd is sigma * C / preconditioner. Zero only in a non-private run.
    clip_norm, sampling_rate : float
        C and kappa.
    preconditioner, learning_rate : ndarray, shape (D,)
        beta and lambda.
    model_prior_mean, model_prior_sd : ndarray, shape (D,)
        The model's prior in phi's coordinates, NaN where it says nothing.
    phi_labels : tuple of str
        D unique labels.
    sums : TraceSums or None
        The sums of the window, where only they were kept; phi and noisy_gradient then hold the last step.
    final_phi : ndarray, shape (D,), optional
        The iterate after the last step, what ordinary DP-SGD would publish; computed from the last step by
        the learning rate when omitted.
    curvature, curvature_std : ndarray, shape (M, M), or None
        An estimate of the Hessian of all records' negative log likelihood in phi's first M coordinates (a
        guide's locations, or coefficients), and the sd of each entry's noise; for ``method="dense"``.
    guarantee : Guarantee or None
        What is promised; None when a trace was brought in without one.
    description : ModelDescription or None
        Model, schema and guide; None when phi is itself the parameter of interest.
    config : DPVIConfig or None
        Settings of the run.
    versions : dict
        Package versions at the time of the run.
    """

    phi: Array
    noisy_gradient: Array
    noise_multiplier: float
    clip_norm: float
    sampling_rate: float
    preconditioner: Array
    learning_rate: Array
    model_prior_mean: Array
    model_prior_sd: Array
    phi_labels: tuple[str, ...]
    sums: TraceSums | None = None
    final_phi: Array = dataclasses.field(default_factory=lambda: np.zeros(0))
    curvature: Array | None = None
    curvature_std: Array | None = None
    guarantee: Guarantee | None = None
    description: ModelDescription | None = None
    config: DPVIConfig | None = None
    versions: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("phi", "noisy_gradient", "final_phi", *PER_COORDINATE):
            array = np.array(getattr(self, name), dtype=np.float64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if self.phi.ndim != 2 or self.phi.shape != self.noisy_gradient.shape:
            raise ArgumentError(
                "phi and noisy_gradient must both have shape (T, D) "
                f"(got {self.phi.shape} and {self.noisy_gradient.shape})."
            )
        vectors = {name: getattr(self, name) for name in PER_COORDINATE}
        check_coordinates(vectors, labels=self.phi_labels, dimension=self.dimension)
        matrix, std = check_curvature(self.curvature, self.curvature_std, dimension=self.dimension)
        object.__setattr__(self, "curvature", matrix)
        object.__setattr__(self, "curvature_std", std)
        check_finite_steps("phi", self.phi)
        check_finite_steps("noisy_gradient", self.noisy_gradient)
        if not self.final_phi.size and self.num_steps:
            # Without a learning rate it is not known, which NaN says.
            final = self.phi[-1] - self.learning_rate * self.noisy_gradient[-1]
            final.setflags(write=False)
            object.__setattr__(self, "final_phi", final)
        check_parts(self)

    @property
    def num_steps(self) -> int:
        """T, the number of noisy gradients that are here; fewer than were taken where a run was thinned."""
        return int(self.phi.shape[0])

    @property
    def dimension(self) -> int:
        """D, the length of phi."""
        return int(self.phi.shape[1])

    @property
    def guide(self) -> Guide | None:
        """What phi are the parameters of; None where phi is itself the parameter of interest."""
        return None if self.description is None else self.description.guide

    @property
    def noise_std(self) -> Array:
        """Standard deviation of the privacy noise in `noisy_gradient`, shape (D,): sigma * C / beta."""
        std: Array = self.noise_multiplier * self.clip_norm / self.preconditioner
        return std

    @property
    def is_private(self) -> bool:
        """Whether a differential privacy guarantee stands behind this trace."""
        return self.guarantee is not None and self.guarantee.is_private

    def check_guarantee(self) -> None:
        """Raise `ArgumentError` if epsilon on record is below what is accounted anew: up to seconds.

        A plain fault is found wherever a release is made or loaded (`nadpvi.privacy.guarantee_check`).
        """
        if self.guarantee is not None:
            check_accounted(self.guarantee)

    def __repr__(self) -> str:
        promise = "no guarantee on record" if self.guarantee is None else self.guarantee.sentence()
        return f"<nadpvi.Release: {self.num_steps} steps, {self.dimension} coordinates. {promise}>"

    def _repr_html_(self) -> str:
        if self.guarantee is None:
            promise = html_note("No guarantee on record.", is_good=False)
        else:
            promise = self.guarantee._repr_html_()
        facts = {
            "kept steps" if self.sums is None else "window's steps, as sums": self.num_steps
            if self.sums is None
            else self.sums.num_steps,
            "coordinates": self.dimension,
            "model": "none" if self.description is None else self.description.model.kind,
        }
        return promise + html_pairs("Release", facts.items())

    @classmethod
    def from_arrays(
        cls,
        *,
        phi: ArrayLike,
        noisy_gradient: ArrayLike,
        noise_multiplier: float,
        clip_norm: float,
        sampling_rate: float,
        preconditioner: ArrayLike = 1.0,
        learning_rate: ArrayLike = math.nan,
        loss: Literal["sum", "mean", "expected_batch"] = "sum",
        num_records: int | None = None,
        expected_batch_size: float | None = None,
        phi_labels: Sequence[str] | None = None,
        model_prior_mean: ArrayLike = math.nan,
        model_prior_sd: ArrayLike = math.nan,
        guarantee: Guarantee | None = None,
        privacy: PrivacyBudget | None = None,
        num_steps: int | None = None,
        curvature: ArrayLike | None = None,
        curvature_std: ArrayLike | None = None,
    ) -> "Release":
        """Return a release made of a DP-SGD trace from elsewhere, with gradients as noisy sums.

        Parameters
        ----------
        phi : array_like, shape (T, D) or (T + 1, D)
            Iterates: row t is the point at which gradient t was computed, and a row more the final iterate.
            They may be the parameters of a model themselves (maximum a posteriori, empirical risk).
        noisy_gradient : array_like, shape (T, D)
            Clipped, summed and noised gradients of the *loss*, divided as `loss` says; with the gradient of
            a penalty or prior added, divided likewise, where the steps used it.
        noise_multiplier, clip_norm, sampling_rate : float
            sigma, C and kappa of the run; the noise on a sum had sd sigma * C.
        preconditioner, learning_rate : array_like, shape (D,) or scalar
            beta, and lambda in phi[t + 1] = phi[t] - lambda * noisy_gradient[t] with the gradient as given.
            Leave lambda out where steps were others (momentum, Adam, a schedule).
        loss : {"sum", "mean", "expected_batch"}
            What the noisy sums were divided by: nothing; ``sampling_rate * num_records``, for the gradient of
            the mean loss of a data set; or `expected_batch_size`, whatever number that was.
        num_records, expected_batch_size : int, float, optional
            For "mean" only, a public number of records; for "expected_batch" only, never a batch's own size
            (Opacus: ``optimizer.expected_batch_size``).
        phi_labels : sequence of str, optional
            D labels; ``phi[0]``, ``phi[1]``, ... when omitted.
        model_prior_mean, model_prior_sd : array_like, shape (D,) or scalar, optional
            A prior for phi_star, NaN where there is none.
        guarantee : Guarantee, optional
            The guarantee under which the trace was made, if there is one on record.
        privacy : PrivacyBudget, optional
            Or the (epsilon, delta) that the run is known to keep: sigma, kappa and T are accounted here and
            go on record. That the noise was real and secret, and the sampling Poisson, is taken on your word.
        num_steps : int, optional
            With `privacy`: noisy gradients that were drawn, if more than are given.
        curvature, curvature_std : array_like, shape (M, M), optional
            A noisy Hessian in phi's first M coordinates, and the sd > 0 of its entries' noise (or one
            number), infinite where nothing is said; not accounted here. It is that of the summed loss with
            "sum", of the mean loss with "mean" or "expected_batch", and multiplied back like the gradients.

        Raises
        ------
        ArgumentError
            If shapes disagree, a setting is out of range or belongs to another loss, phi and noisy_gradient
            show that they were paired off by one, or the gradients vary less than their noise.
        PrivacyError
            If the noise is too small for `privacy`.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> phi, mean_gradient = rng.normal(size=(100, 2)), rng.normal(size=(100, 2))
        >>> made = Release.from_arrays(
        ...     phi=phi, noisy_gradient=mean_gradient, noise_multiplier=16.0, clip_norm=2.0,
        ...     sampling_rate=0.1, loss="expected_batch", expected_batch_size=32)
        >>> bool((made.noisy_gradient == 32 * mean_gradient).all()), made.noise_std
        (True, array([32., 32.]))
        """
        fields = foreign_fields(
            phi=phi,
            noisy_gradient=noisy_gradient,
            noise_multiplier=noise_multiplier,
            clip_norm=clip_norm,
            sampling_rate=sampling_rate,
            preconditioner=preconditioner,
            learning_rate=learning_rate,
            loss=loss,
            num_records=num_records,
            expected_batch_size=expected_batch_size,
            phi_labels=phi_labels,
            model_prior_mean=model_prior_mean,
            model_prior_sd=model_prior_sd,
            guarantee=guarantee,
            privacy=privacy,
            num_steps=num_steps,
            curvature=curvature,
            curvature_std=curvature_std,
        )
        made = cls(**fields, versions=package_versions())
        check_claimed_noise(made.phi, made.noisy_gradient, noise_std=made.noise_std, loss=loss)
        return made

    def to_dataset(self) -> xr.Dataset:
        """Return the release as an xarray Dataset whose one attribute is its JSON header."""
        return release_dataset(self)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the release to a netCDF file, whole or not at all, and return its path.

        Its checksum finds damage and careless edits, not a forger (`nadpvi.containers.checksum`).

        Raises
        ------
        FileError
            If the file exists and `overwrite` is false, or cannot be written.
        """
        return write_bytes(to_netcdf(with_checksum(self.to_dataset())), path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Release":
        """Return the release in a netCDF file.

        Raises
        ------
        FileError
            If the file is missing, foreign or damaged, holds no release, or is of a newer format.
        """
        return load_release_file(path, build=cls._from_file)

    @classmethod
    def _from_file(cls, data: xr.DataTree, header: dict[str, Any]) -> "Release":
        """Build a release from what its file holds."""
        return cls(**release_fields(data, header))
