"""The release: everything that leaves the private side, and nothing else.

A release holds the DP-SGD trace (each iterate and the noisy gradient computed there), the public settings
that produced it and the guarantee under which it was made. It never holds records, their number, unclipped
norms, losses, batch sizes or seeds.
"""

import dataclasses
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from nadpvi.checks import check_positive, check_real
from nadpvi.config import DPVIConfig
from nadpvi.containers.storage import HEADER, load_file, package_versions, to_netcdf, write_bytes
from nadpvi.description import ModelDescription
from nadpvi.errors import ArgumentError
from nadpvi.gradient_model.data import TraceSums
from nadpvi.guides import Guide
from nadpvi.privacy.guarantee import Guarantee

__all__ = ["Release"]

Array = NDArray[np.float64]

_FORMAT_VERSION = 2
_PER_COORDINATE = ("preconditioner", "learning_rate", "model_prior_mean", "model_prior_sd")
_SUMS = ("phi_bar", "g_bar", "s_pp", "s_gp", "s_gg")


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
    guarantee: Guarantee | None = None
    description: ModelDescription | None = None
    config: DPVIConfig | None = None
    versions: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("phi", "noisy_gradient", "final_phi", *_PER_COORDINATE):
            array = np.array(getattr(self, name), dtype=np.float64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if self.phi.ndim != 2 or self.phi.shape != self.noisy_gradient.shape:
            raise ArgumentError(
                "phi and noisy_gradient must both have shape (T, D) "
                f"(got {self.phi.shape} and {self.noisy_gradient.shape})."
            )
        for name in _PER_COORDINATE:
            if getattr(self, name).shape != (self.dimension,):
                raise ArgumentError(
                    f"{name} must have shape ({self.dimension},) (got {getattr(self, name).shape})."
                )
        if len(self.phi_labels) != self.dimension or len(set(self.phi_labels)) != self.dimension:
            raise ArgumentError(f"phi_labels must be {self.dimension} different names.")
        _check_settings(self)
        if not self.final_phi.size and self.num_steps:
            # Without a learning rate it is not known, which NaN says.
            final = self.phi[-1] - self.learning_rate * self.noisy_gradient[-1]
            final.setflags(write=False)
            object.__setattr__(self, "final_phi", final)
        if self.final_phi.shape != (self.dimension,):
            raise ArgumentError(
                f"final_phi must have shape ({self.dimension},) (got {self.final_phi.shape})."
            )
        if self.sums is not None and self.sums.num_parameters != self.dimension:
            raise ArgumentError(f"sums must be of {self.dimension} coordinates.")

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

    def __repr__(self) -> str:
        promise = "no guarantee on record" if self.guarantee is None else self.guarantee.sentence()
        return f"<nadpvi.Release: {self.num_steps} steps, {self.dimension} coordinates. {promise}>"

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
        phi_labels: tuple[str, ...] | None = None,
        model_prior_mean: ArrayLike = math.nan,
        model_prior_sd: ArrayLike = math.nan,
        guarantee: Guarantee | None = None,
    ) -> "Release":
        """Return a release made of a DP-SGD trace from elsewhere.

        Parameters
        ----------
        phi, noisy_gradient : array_like, shape (T, D)
            Iterates, and the noisy *sums* of clipped loss gradients computed at them. Multiply averaged
            gradients by the expected batch size first.
        noise_multiplier, clip_norm, sampling_rate : float
            sigma, C and kappa of the run.
        preconditioner, learning_rate : array_like, shape (D,) or scalar
            beta and lambda; lambda may be omitted.
        phi_labels : tuple of str, optional
            D labels; ``phi[0]``, ``phi[1]``, ... when omitted.
        model_prior_mean, model_prior_sd : array_like, shape (D,) or scalar, optional
            A prior for phi_star, NaN where there is none.
        guarantee : Guarantee, optional
            The guarantee under which the trace was made, if it is known.

        Raises
        ------
        ArgumentError
            If shapes disagree or a setting is out of range.
        """
        trace = np.asarray(phi, dtype=np.float64)
        dimension = trace.shape[-1] if trace.ndim == 2 else 0
        labels = phi_labels if phi_labels is not None else tuple(f"phi[{i}]" for i in range(dimension))
        return cls(
            phi=trace,
            noisy_gradient=np.asarray(noisy_gradient, dtype=np.float64),
            noise_multiplier=noise_multiplier,
            clip_norm=clip_norm,
            sampling_rate=sampling_rate,
            preconditioner=_per_coordinate(preconditioner, dimension),
            learning_rate=_per_coordinate(learning_rate, dimension),
            model_prior_mean=_per_coordinate(model_prior_mean, dimension),
            model_prior_sd=_per_coordinate(model_prior_sd, dimension),
            phi_labels=tuple(labels),
            guarantee=guarantee,
            versions=package_versions(),
        )

    def to_dataset(self) -> xr.Dataset:
        """Return the release as an xarray Dataset whose one attribute is its JSON header."""
        per_step = {"iterates": self.phi, "noisy_gradient": self.noisy_gradient}
        variables: dict[str, Any] = {name: (("step", "phi"), value) for name, value in per_step.items()}
        variables |= {name: ("phi", getattr(self, name)) for name in (*_PER_COORDINATE, "final_phi")}
        if self.sums is not None:
            variables |= {f"window_{name}": ("phi", getattr(self.sums, name)) for name in _SUMS}
        coords = {"phi": np.array(self.phi_labels, dtype=object), "step": np.arange(self.num_steps)}
        return xr.Dataset(variables, coords=coords, attrs={HEADER: json.dumps(self._header())})

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the release to a netCDF file, whole or not at all, and return its path.

        Raises
        ------
        FileError
            If the file exists and `overwrite` is false, or cannot be written.
        """
        return write_bytes(to_netcdf(self.to_dataset()), path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Release":
        """Return the release in a netCDF file.

        Raises
        ------
        FileError
            If the file is missing, foreign or damaged, holds something other than a release, or is of a newer
            format.
        """
        return load_file(path, kind="release", format_version=_FORMAT_VERSION, build=cls._from_file)

    @classmethod
    def _from_file(cls, data: xr.DataTree, header: dict[str, Any]) -> "Release":
        """Build a release from what its file holds."""
        return cls(
            phi=data["iterates"].to_numpy(),
            noisy_gradient=data["noisy_gradient"].to_numpy(),
            sums=_read(header, "window_steps", lambda steps: _read_sums(data, num_steps=int(steps))),
            # Files of format 1 have none; it follows from their last step.
            final_phi=data["final_phi"].to_numpy() if "final_phi" in data else np.zeros(0),
            noise_multiplier=check_real("noise_multiplier", header["noise_multiplier"]),
            clip_norm=check_positive("clip_norm", header["clip_norm"]),
            sampling_rate=check_positive("sampling_rate", header["sampling_rate"]),
            preconditioner=data["preconditioner"].to_numpy(),
            learning_rate=data["learning_rate"].to_numpy(),
            model_prior_mean=data["model_prior_mean"].to_numpy(),
            model_prior_sd=data["model_prior_sd"].to_numpy(),
            phi_labels=tuple(str(label) for label in data["phi"].to_numpy()),
            guarantee=_read(header, "guarantee", Guarantee.from_dict),
            description=_read(header, "description", ModelDescription.from_dict),
            config=_read(header, "config", DPVIConfig.from_dict),
            versions={str(name): str(number) for name, number in header["versions"].items()},
        )

    def _header(self) -> dict[str, Any]:
        """Everything that is not an array, as JSON types."""
        return {
            "kind": "release",
            "format_version": _FORMAT_VERSION,
            "window_steps": None if self.sums is None else self.sums.num_steps,
            "noise_multiplier": self.noise_multiplier,
            "clip_norm": self.clip_norm,
            "sampling_rate": self.sampling_rate,
            "guarantee": None if self.guarantee is None else self.guarantee.to_dict(),
            "description": None if self.description is None else self.description.to_dict(),
            "config": None if self.config is None else self.config.to_dict(),
            "versions": dict(self.versions),
        }


def _per_coordinate(value: ArrayLike, dimension: int) -> Array:
    """Return a scalar as a constant vector, and anything else as an array."""
    array = np.asarray(value, dtype=np.float64)
    return np.full(dimension, float(array)) if array.ndim == 0 else array


def _read(header: dict[str, Any], key: str, build: Any) -> Any:
    """Return ``build(header[key])``, or None where the header has none."""
    return None if header.get(key) is None else build(header[key])


def _read_sums(data: xr.DataTree, *, num_steps: int) -> TraceSums:
    """Return the sums of a window in a file."""
    return TraceSums(num_steps=num_steps, **{name: data[f"window_{name}"].to_numpy() for name in _SUMS})


def _check_settings(release: Release) -> None:
    """Refuse settings that no DP-SGD run can have had."""
    if not (math.isfinite(release.noise_multiplier) and release.noise_multiplier >= 0):
        raise ArgumentError(
            f"noise_multiplier must be finite and not negative (got {release.noise_multiplier})."
        )
    if not (math.isfinite(release.clip_norm) and release.clip_norm > 0):
        raise ArgumentError(f"clip_norm must be finite and positive (got {release.clip_norm}).")
    if not 0 < release.sampling_rate <= 1:
        raise ArgumentError(f"sampling_rate must be in (0, 1] (got {release.sampling_rate}).")
    if not (np.isfinite(release.preconditioner).all() and (release.preconditioner > 0).all()):
        raise ArgumentError("preconditioner must be finite and positive in every coordinate.")
    promised = release.guarantee
    if promised is not None and (
        promised.num_steps < release.num_steps
        or promised.noise_multiplier != release.noise_multiplier
        or promised.clip_norm != release.clip_norm
        or promised.sampling_rate != release.sampling_rate
    ):
        raise ArgumentError(
            "guarantee must be that of this trace: its noise_multiplier, clip_norm, sampling_rate or "
            "num_steps differs."
        )
    for name in ("phi", "noisy_gradient"):
        bad = ~np.isfinite(getattr(release, name)).all(axis=1)
        if bad.any():
            raise ArgumentError(f"{name} is not finite at step {int(np.argmax(bad))}; the run diverged.")
