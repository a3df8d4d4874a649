"""What a DPVIm run publishes: its iterates, with the guarantee under which they were made. Public side."""

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nadpvi.checks import check_positive, check_real
from nadpvi.config import DPVIConfig
from nadpvi.containers.checksum import with_checksum
from nadpvi.containers.promise_checks import check_promise, check_run
from nadpvi.containers.release_checks import check_finite_steps, check_settings
from nadpvi.containers.storage import HEADER, load_file, to_netcdf, write_bytes
from nadpvi.description import ModelDescription
from nadpvi.errors import ArgumentError
from nadpvi.privacy.guarantee import Guarantee
from nadpvi.privacy.guarantee_check import check_accounted

__all__ = ["DPVImRelease"]

Array = NDArray[np.float64]

_FORMAT_VERSION = 2
_SUMMED_SINCE = 2  # the first version with a checksum
_KIND = "DPVIm release"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DPVImRelease:
    """The iterates of a run with aligned gradients. Make one with `nadpvi.baselines.dpvim_release`.

    It is no `nadpvi.Release`, since the noise in its scales is that of its locations times the guide's draws:
    `nadpvi.infer`, which takes all noise to be independent, does not accept it.

    Parameters
    ----------
    phi : ndarray, shape (T, D)
        The iterate before each step that was kept.
    final_phi : ndarray, shape (D,)
        The iterate after the last step.
    noise_multiplier, clip_norm, sampling_rate : float
        sigma, C and kappa: the noise of the summed location gradient has sd sigma * C.
    description : ModelDescription
        Model, schema and guide.
    config : DPVIConfig
        Settings of the run.
    guarantee : Guarantee
        What is promised.
    versions : dict
        Package versions at the time of the run.
    """

    phi: Array
    final_phi: Array
    noise_multiplier: float
    clip_norm: float
    sampling_rate: float
    description: ModelDescription
    config: DPVIConfig
    guarantee: Guarantee
    versions: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("phi", "final_phi"):
            array = np.array(getattr(self, name), dtype=np.float64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        dimension = len(self.description.phi_labels)
        if self.phi.ndim != 2 or self.phi.shape[1] != dimension or self.final_phi.shape != (dimension,):
            raise ArgumentError(
                f"phi and final_phi must have {dimension} coordinates (got {self.phi.shape} and "
                f"{self.final_phi.shape})."
            )
        check_finite_steps("phi", self.phi)
        check_finite_steps("final_phi", self.final_phi[None])
        check_settings(
            noise_multiplier=self.noise_multiplier,
            clip_norm=self.clip_norm,
            sampling_rate=self.sampling_rate,
            preconditioner=np.ones(dimension),
            guarantee=self.guarantee,
        )
        check_promise(self.guarantee, description=self.description)
        check_run(self.guarantee, config=self.config, num_kept=len(self.phi), window_steps=None)

    @property
    def is_private(self) -> bool:
        """Whether a differential privacy guarantee stands behind this trace."""
        return self.guarantee.is_private

    def check_guarantee(self) -> None:
        """Raise `ArgumentError` if the epsilon on record is below what its settings spend: up to seconds."""
        check_accounted(self.guarantee)

    def __repr__(self) -> str:
        steps, dimension = self.phi.shape
        return f"<DPVImRelease: {steps} steps, {dimension} coordinates. {self.guarantee.sentence()}>"

    def to_dataset(self) -> xr.Dataset:
        """Return the release as an xarray Dataset whose one attribute is its JSON header."""
        header = {
            "kind": _KIND,
            "format_version": _FORMAT_VERSION,
            "noise_multiplier": self.noise_multiplier,
            "clip_norm": self.clip_norm,
            "sampling_rate": self.sampling_rate,
            "description": self.description.to_dict(),
            "config": self.config.to_dict(),
            "guarantee": self.guarantee.to_dict(),
            "versions": dict(self.versions),
        }
        coords = {
            "phi": np.array(self.description.phi_labels, dtype=object),
            "step": np.arange(len(self.phi)),
        }
        variables = {"iterates": (("step", "phi"), self.phi), "final_phi": ("phi", self.final_phi)}
        return xr.Dataset(variables, coords=coords, attrs={HEADER: json.dumps(header)})

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the release to a netCDF file, whole or not at all, and return its path.

        Raises
        ------
        FileError
            If the file exists and `overwrite` is false, or cannot be written.
        """
        return write_bytes(to_netcdf(with_checksum(self.to_dataset())), path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "DPVImRelease":
        """Return the release in a netCDF file.

        Raises
        ------
        FileError
            If the file is missing, foreign or damaged, or holds something else.
        """
        return load_file(
            path,
            kind=_KIND,
            format_version=_FORMAT_VERSION,
            summed_since=_SUMMED_SINCE,
            build=cls._from_file,
        )

    @classmethod
    def _from_file(cls, data: xr.DataTree, header: dict[str, Any]) -> "DPVImRelease":
        """Build a release from what its file holds."""
        return cls(
            phi=data["iterates"].to_numpy(),
            final_phi=data["final_phi"].to_numpy(),
            noise_multiplier=check_real("noise_multiplier", header["noise_multiplier"]),
            clip_norm=check_positive("clip_norm", header["clip_norm"]),
            sampling_rate=check_positive("sampling_rate", header["sampling_rate"]),
            description=ModelDescription.from_dict(header["description"]),
            config=DPVIConfig.from_dict(header["config"]),
            guarantee=Guarantee.from_dict(header["guarantee"]),
            versions={str(name): str(number) for name, number in header["versions"].items()},
        )
