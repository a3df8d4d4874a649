"""The posterior: draws of phi_star, curvature and the model's parameters, with where they came from."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from nadpvi.arviz_bridge import to_arviz
from nadpvi.containers.checksum import with_checksum
from nadpvi.containers.posterior_checks import GROUPS, check_groups, check_settings, read_findings
from nadpvi.containers.posterior_like import PROMISE
from nadpvi.containers.posterior_views import PosteriorViews
from nadpvi.containers.promise_checks import check_promise
from nadpvi.containers.release import Release
from nadpvi.containers.storage import HEADER, load_file, to_netcdf, write_bytes
from nadpvi.containers.variables import model_variables
from nadpvi.description import ModelDescription
from nadpvi.diagnostics.chains import num_divergences, summarise
from nadpvi.diagnostics.findings import Finding
from nadpvi.errors import ArgumentError
from nadpvi.inference.from_cmdstan import read_posterior
from nadpvi.models import Model
from nadpvi.models.parameters import unconstrain_draws
from nadpvi.predictive import predict_intervals, predict_mean, predictions_frame
from nadpvi.privacy.guarantee import Guarantee
from nadpvi.privacy.guarantee_check import check_accounted
from nadpvi.tables import TableLike

__all__ = ["PROMISE", "Posterior", "model_variables"]

Array = NDArray[np.float64]

_FORMAT_VERSION = 2
_SUMMED_SINCE = 2  # files of this format and later hold a checksum


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Posterior(PosteriorViews):
    """Draws from a posterior, in ArviZ's groups, with the guarantee and the model they belong to.

    Parameters
    ----------
    groups : mapping of str to xarray.Dataset
        ``posterior`` and, where there are any, ``sample_stats``, ``observed_data``, ``constant_data``.
        Every posterior variable has dims (chain, draw, ...).
    settings : dict
        How it was made: method, engine, priors, window; JSON types.
    guarantee : Guarantee or None
        Privacy guarantee of the release behind it.
    description : ModelDescription or None
        Model, schema and guide; needed for `predict`.
    """

    groups: Mapping[str, xr.Dataset]
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    guarantee: Guarantee | None = None
    description: ModelDescription | None = None

    def __post_init__(self) -> None:
        check_groups(self.groups)
        check_settings(self.settings)
        check_promise(self.guarantee, description=self.description)

    def check_guarantee(self) -> None:
        """Raise `ArgumentError` if the epsilon on record is below what its settings spend: up to seconds.

        See `nadpvi.privacy.guarantee_check`.
        """
        if self.guarantee is not None:
            check_accounted(self.guarantee)

    def __repr__(self) -> str:
        sizes = self.groups["posterior"].sizes
        names = ", ".join(str(name) for name in self.groups["posterior"].data_vars)
        promise = self.settings.get(PROMISE, "no guarantee on record")
        if self.guarantee is not None:
            promise = self.guarantee.sentence()
        return (
            f"<nadpvi.Posterior: {sizes['chain']} chains of {sizes['draw']} draws of {names}; "
            f"method {self.settings.get('method')}. {promise}>"
        )

    def to_datatree(self) -> xr.DataTree:
        """Return an xarray DataTree with one node a group; `tree["posterior"]` holds the draws."""
        tree = xr.DataTree.from_dict({name: self.groups[name] for name in GROUPS if name in self.groups})
        tree.attrs[HEADER] = json.dumps(self._header())
        return tree

    def to_arviz(self) -> Any:
        """Return what the installed ArviZ works on: InferenceData for 0.x, a DataTree for 1.x."""
        return to_arviz(self.to_datatree())

    def theta(self) -> Array:
        """Return draws of the model's parameters on the unconstrained scale, shape (chain, draw, K).

        Raises
        ------
        ArgumentError
            If there is no model, only phi_star.
        """
        posterior, blocks = self.groups["posterior"], self._described().parameters
        return unconstrain_draws(blocks, {block.name: posterior[block.name].to_numpy() for block in blocks})

    def summary(self, *, probability: float = 0.9) -> pd.DataFrame:
        """Return mean, sd, equal-tailed interval, ESS and R-hat, one row an entry of a parameter.

        Parameters are shown on their own scale. See `nadpvi.diagnostics.summarise`.
        """
        if self.description is None:
            labels = {"phi_star": [str(label) for label in self.groups["posterior"]["phi"].to_numpy()]}
        else:
            labels = {block.name: list(block.entry_labels) for block in self.description.parameters}
        return summarise(self.groups["posterior"], labels=labels, probability=probability)

    def with_model(self, model: Model) -> "Posterior":
        """Return this posterior with a custom model's functions, which no file holds, so that it can predict.

        Raises
        ------
        ArgumentError
            If there is no model, or it differs from `model`: see `ModelDescription.with_model`.
        """
        return dataclasses.replace(self, description=self._described().with_model(model))

    @property
    def num_divergences(self) -> int | None:
        """Number of divergent transitions, or None where the method has no chains."""
        return num_divergences(self.groups.get("sample_stats"))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the checks of the release and of the draws found when this was made."""
        return read_findings(self.settings)

    def predict(self, table: TableLike) -> Array:
        """Return the posterior predictive mean of the outcome, one number a row of `table`, shape (N,).

        See `nadpvi.predictive.predict_mean`.
        """
        return predict_mean(self._described(), theta=self._flat_theta(), table=table)

    def predict_table(self, table: TableLike, *, probability: float = 0.9) -> pd.DataFrame:
        """Return predictions with an equal-tailed interval, as columns mean, lower and upper, a row each.

        For a categorical outcome every level has its own three. The interval is that of the mean, not of a
        single outcome. See `nadpvi.predictive.predict_intervals`.
        """
        described = self._described()
        found = predict_intervals(described, theta=self._flat_theta(), table=table, probability=probability)
        return predictions_frame(found, design=described.design)

    def _described(self) -> ModelDescription:
        """Return model and schema, or raise `ArgumentError` if there are none."""
        if self.description is None:
            raise ArgumentError("this posterior has no model, only phi_star and curvature.")
        return self.description

    def _flat_theta(self) -> Array:
        """Return the draws of the parameters, shape (M, K)."""
        theta = self.theta()
        return theta.reshape(-1, theta.shape[-1])

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the posterior to a netCDF file, whole or not at all, and return its path.

        Its checksum finds damage and careless edits, not a forger (`nadpvi.containers.checksum`).
        Any program that reads ArviZ's netCDF groups can open the file.

        Raises
        ------
        FileError
            If the file exists and `overwrite` is false, or cannot be written.
        """
        return write_bytes(to_netcdf(with_checksum(self.to_datatree())), path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Posterior":
        """Return the posterior in a netCDF file.

        Raises
        ------
        FileError
            If the file is missing, foreign or damaged, holds something other than a posterior, or is of a
            newer format.
        """
        return load_file(
            path,
            kind="posterior",
            format_version=_FORMAT_VERSION,
            summed_since=_SUMMED_SINCE,
            build=cls._from_file,
        )

    @classmethod
    def from_cmdstan(
        cls,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        release: Release,
        burn_in: float | Literal["auto"] | None = None,
        phi_star_prior: Literal["trace", "model"] = "trace",
        curvature_prior: Literal["auto", "trace", "weak", "model", "tighter"] = "auto",
        seed: int | None = None,
    ) -> "Posterior":
        """Return CmdStan's draws of an exported release, as ``infer(release, method="nuts")`` returns them.

        Parameters
        ----------
        files : path or sequence of path
            The CSV files of one run of a program from `nadpvi.export_stan`, one a chain: those of CmdStan's
            command line, of cmdstanr (``fit$output_files()``) or of cmdstanpy.
        release : Release
            The one that was exported.
        burn_in, phi_star_prior, curvature_prior
            As in the export.
        seed : int, optional
            Used only where the files hold no draws of the model's parameters, to draw them here.

        Raises
        ------
        FileError
            If a file is missing, cut off or foreign, the files are not chains of one run, or their draws do
            not follow from this release and these settings. One line that names the file.
        ArgumentError
            If a setting is out of range.

        Warns
        -----
        InferenceWarning
            As in `nadpvi.infer`.
        """
        found = read_posterior(
            files,
            release=release,
            burn_in=burn_in,
            phi_star_prior=phi_star_prior,
            curvature_prior=curvature_prior,
            seed=seed,
            stacklevel=2,
        )
        return cls(
            groups=found.groups,
            settings=found.settings,
            guarantee=release.guarantee,
            description=release.description,
        )

    @classmethod
    def _from_file(cls, tree: xr.DataTree, header: dict[str, Any]) -> "Posterior":
        """Build a posterior from what its file holds."""
        guarantee, description = header["guarantee"], header["description"]
        made = cls(
            groups={name: tree[name].to_dataset() for name in GROUPS if name in tree.children},
            settings=header["settings"],
            guarantee=None if guarantee is None else Guarantee.from_dict(guarantee),
            description=None if description is None else ModelDescription.from_dict(description),
        )
        if made.description is not None:
            made.theta()  # every parameter of the model must be there
        return made

    def _header(self) -> dict[str, Any]:
        """Everything that is not an array, as JSON types."""
        return {
            "kind": "posterior",
            "format_version": _FORMAT_VERSION,
            "settings": self.settings,
            "guarantee": None if self.guarantee is None else self.guarantee.to_dict(),
            "description": None if self.description is None else self.description.to_dict(),
        }
