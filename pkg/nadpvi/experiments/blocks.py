"""Some simulated tables with all that methods may ask for, made once when first asked for."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nadpvi.config import DPVIConfig
from nadpvi.containers.release import Release
from nadpvi.experiments.sources import Setting, SimulatedTable, make_setting, simulate
from nadpvi.gradient_model.priors import window_sums
from nadpvi.models.base import ExponentialFamily
from nadpvi.planning.suggestion import suggest_config
from nadpvi.privacy.budget import PrivacyBudget
from nadpvi.private.curator import release
from nadpvi.private.replicates import replicate_seed, simulate_releases

__all__ = ["SUGGESTED", "Block"]

SUGGESTED = "suggested"  # among an arm's settings: what `suggest_config` returns for its source and budget

Array = NDArray[np.float64]


class Block:
    """The replicates first, ..., first + count - 1 of one arm.

    Parameters
    ----------
    settings : mapping
        A task's settings, as `Experiment.tasks` makes them.
    seed : int
        The experiment's. Replicate r depends on it and on r alone, so that arms share their tables, and
        settings are compared on the same data and noise.
    """

    def __init__(self, settings: Mapping[str, Any], *, seed: int) -> None:
        self.settings = settings
        self.draws = int(settings["draws"])
        self.warmup = int(settings["warmup"])
        self.infer: dict[str, Any] = dict(settings["infer"])
        first = int(settings["first"])
        self.seeds = [replicate_seed(seed, number) for number in range(first, first + int(settings["count"]))]
        self.setting: Setting = make_setting(settings["source"])
        self.budget = PrivacyBudget(epsilon=settings["epsilon"], delta=settings["delta"])

    @functools.cached_property
    def tables(self) -> list[SimulatedTable]:
        """One table for each replicate."""
        return simulate(self.setting, self.seeds)

    @functools.cached_property
    def theta(self) -> Array:
        """The truth, shape (R, K)."""
        return np.array([table.theta for table in self.tables])

    def config(self, **changes: Any) -> DPVIConfig:
        """Return the arm's settings; those it names replace what is suggested, where it asks for that."""
        given = {**self.settings["settings"], **changes}
        if not given.pop(SUGGESTED, False):
            return DPVIConfig.from_dict(given)
        return DPVIConfig.from_dict({**self._suggested.to_dict(), **given})

    @functools.cached_property
    def _suggested(self) -> DPVIConfig:
        """What would be chosen by somebody who guesses the number of records right."""
        return suggest_config(
            self.setting.model,
            self.budget,
            schema=self.setting.schema,
            num_records=self.setting.num_records,
            covariates=self.setting.covariates,
        )

    @functools.cached_property
    def releases(self) -> list[Release]:
        """One simulated release of each table, with its whole trace where it is made one at a time."""
        return self.releases_of(self.config())

    @functools.cached_property
    def summed_releases(self) -> list[Release]:
        """The same releases with the sums of their windows alone, where many are made at once."""
        if not isinstance(self.setting.model, ExponentialFamily):
            return self.releases
        return self.releases_of(self.config(keep="sums", **self._window()))

    @functools.cached_property
    def mean_locations(self) -> Array:
        """The window's mean of the guide's locations, shape (R, K)."""
        releases, size = self.summed_releases, self.theta.shape[1]
        burn_in = self.inference_of(releases).get("burn_in")
        return np.array([window_sums(made, burn_in=burn_in).phi_bar[:size] for made in releases])

    def releases_of(self, config: DPVIConfig) -> list[Release]:
        """Return one simulated release of each table under the given settings."""
        shared: dict[str, Any] = {"schema": self.setting.schema, "privacy": self.budget, "config": config}
        model = self.setting.model
        if isinstance(model, ExponentialFamily):
            outcomes = [table.records.y for table in self.tables]
            traces = simulate_releases(model, outcomes, seeds=self.seeds, **shared)
            return [traces.release(number) for number in range(len(self.seeds))]
        return [
            release(model, table.records, insecure_seed=seed, **shared)
            for table, seed in zip(self.tables, self.seeds, strict=True)
        ]

    def _window(self) -> dict[str, float]:
        """Return the window that `infer` is asked to use, which a release of sums fixes."""
        burn_in = self.infer.get("burn_in")
        return {} if burn_in is None else {"burn_in": float(burn_in)}

    def inference_of(self, releases: list[Release]) -> dict[str, Any]:
        """Return the arguments of `nadpvi.infer` for these releases; the window of sums is fixed already."""
        fixed = releases[0].sums is not None
        return {key: value for key, value in self.infer.items() if not (fixed and key == "burn_in")}

    def generator(self, number: int, *, child: int) -> np.random.Generator:
        """Return the generator `child` of replicate `number`; the run itself has none of these."""
        return np.random.default_rng(np.random.SeedSequence(self.seeds[number], spawn_key=(2**31, child)))

    def draw_seed(self, number: int, *, child: int) -> int:
        """Return a whole number below 2^31 from the same place, for samplers that take one."""
        return int(self.generator(number, child=child).integers(2**31))
