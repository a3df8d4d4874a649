"""A release as it lies in its file: arrays, and a JSON header with everything else."""

import json
import os
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nadpvi.checks import check_positive, check_real
from nadpvi.config import DPVIConfig
from nadpvi.containers.release_parts import ReleaseParts
from nadpvi.containers.storage import HEADER, load_file
from nadpvi.description import ModelDescription
from nadpvi.gradient_model.data import SUM_NAMES, TraceSums
from nadpvi.privacy.guarantee import Guarantee

__all__ = ["PER_COORDINATE", "load_release_file", "release_dataset", "release_fields"]

Array = NDArray[np.float64]

_T = TypeVar("_T")

_FORMAT_VERSION = 3
_SUMMED_SINCE = 3  # files of this format and later hold a checksum
PER_COORDINATE = ("preconditioner", "learning_rate", "model_prior_mean", "model_prior_sd")
_CURVATURE = ("curvature", "curvature_std")


def load_release_file(
    path: str | os.PathLike[str], *, build: Callable[[xr.DataTree, dict[str, Any]], _T]
) -> _T:
    """Return ``build(tree, header)`` for the file of a release; see `load_file`."""
    return load_file(
        path,
        kind="release",
        format_version=_FORMAT_VERSION,
        summed_since=_SUMMED_SINCE,
        build=build,
    )


def release_dataset(release: ReleaseParts) -> xr.Dataset:
    """Return a release's arrays as a Dataset whose one attribute is its JSON header."""
    per_step = {"iterates": release.phi, "noisy_gradient": release.noisy_gradient}
    variables: dict[str, Any] = {name: (("step", "phi"), value) for name, value in per_step.items()}
    variables |= {name: ("phi", getattr(release, name)) for name in (*PER_COORDINATE, "final_phi")}
    if release.sums is not None:
        variables |= {f"window_{name}": ("phi", getattr(release.sums, name)) for name in SUM_NAMES}
    for name in _CURVATURE:
        if getattr(release, name) is not None:
            variables[name] = (("curvature_row", "curvature_column"), getattr(release, name))
    coords = {"phi": np.array(release.phi_labels, dtype=object), "step": np.arange(release.phi.shape[0])}
    return xr.Dataset(variables, coords=coords, attrs={HEADER: json.dumps(_header(release))})


def _header(release: ReleaseParts) -> dict[str, Any]:
    """Return everything that is not an array, as JSON types."""
    return {
        "kind": "release",
        "format_version": _FORMAT_VERSION,
        "window_steps": None if release.sums is None else release.sums.num_steps,
        "noise_multiplier": release.noise_multiplier,
        "clip_norm": release.clip_norm,
        "sampling_rate": release.sampling_rate,
        "guarantee": None if release.guarantee is None else release.guarantee.to_dict(),
        "description": None if release.description is None else release.description.to_dict(),
        "config": None if release.config is None else release.config.to_dict(),
        "versions": dict(release.versions),
    }


def release_fields(data: xr.DataTree, header: dict[str, Any]) -> dict[str, Any]:
    """Return what a file holds as arguments of `nadpvi.Release`."""
    arrays: dict[str, Any] = {name: data[name].to_numpy() for name in ("noisy_gradient", *PER_COORDINATE)}
    arrays["phi"] = data["iterates"].to_numpy()
    # Files of format 1 have none; it follows from their last step.
    arrays["final_phi"] = data["final_phi"].to_numpy() if "final_phi" in data else np.zeros(0)
    arrays |= {name: data[name].to_numpy() for name in _CURVATURE if name in data}
    if (steps := header.get("window_steps")) is not None:
        sums = {name: data[f"window_{name}"].to_numpy() for name in SUM_NAMES}
        arrays["sums"] = TraceSums(num_steps=int(steps), **sums)
    return {
        **arrays,
        "noise_multiplier": check_real("noise_multiplier", header["noise_multiplier"]),
        "clip_norm": check_positive("clip_norm", header["clip_norm"]),
        "sampling_rate": check_positive("sampling_rate", header["sampling_rate"]),
        "phi_labels": tuple(str(label) for label in data["phi"].to_numpy()),
        "guarantee": _read(header, "guarantee", Guarantee.from_dict),
        "description": _read(header, "description", ModelDescription.from_dict),
        "config": _read(header, "config", DPVIConfig.from_dict),
        "versions": {str(name): str(number) for name, number in header["versions"].items()},
    }


def _read(header: dict[str, Any], key: str, build: Any) -> Any:
    """Return ``build(header[key])``, or None where the header has none."""
    return None if header.get(key) is None else build(header[key])
