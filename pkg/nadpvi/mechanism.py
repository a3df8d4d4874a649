"""A private run before it starts: its settings, where its noise comes from, and what it will promise.

Nothing here sees a record.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nadpvi.config import DPVIConfig
from nadpvi.containers.release import Release
from nadpvi.containers.storage import package_versions
from nadpvi.curvature_share import check_curvature_share, curvature_size
from nadpvi.description import ModelDescription
from nadpvi.errors import ArgumentError
from nadpvi.gradient_model.data import TraceSums
from nadpvi.models.base import Model
from nadpvi.privacy.budget import NonPrivate, PrivacyBudget
from nadpvi.privacy.calibration import calibrated_noise_multiplier, calibrated_split
from nadpvi.privacy.guarantee import Guarantee
from nadpvi.privacy.guarantee_maker import make_guarantee
from nadpvi.privacy.noise import DiscreteGaussianNoise, NoiseSource, NoNoise, SimulatedGaussianNoise
from nadpvi.privacy.randomness import Streams
from nadpvi.privacy.selection import Selection
from nadpvi.settings import Settings, make_settings

__all__ = ["Mechanism", "make_mechanism"]

Array = NDArray[np.float64]

_SIMULATED = "its noise and sampling came from a seed, for simulation"
_INTERRUPTED = "the moments at which the run was interrupted"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mechanism:
    """One run of DP-SGD, calibrated to its budget. Make one with `make_mechanism`.

    Parameters
    ----------
    description : ModelDescription
        Model, schema and guide.
    config : DPVIConfig
        Settings as the user gave them.
    privacy : PrivacyBudget or NonPrivate
        What the run may spend.
    settings : Settings
        The same settings as numbers.
    noise_multiplier : float
        sigma, per clip norm of one record.
    discreteness : float
        xi of `nadpvi.privacy.discreteness`.
    selection : Selection or None
        The run is one of a random number of which the best is published.
    noise_dimension : int
        How many coordinates each step's noise has: D, or fewer where the others follow from those.
    curvature_noise_multiplier : float or None
        Sd of the noise of the curvature that is released after the last step, per what one record may add;
        None where none is.
    """

    description: ModelDescription
    config: DPVIConfig
    privacy: PrivacyBudget | NonPrivate
    settings: Settings
    noise_multiplier: float
    discreteness: float
    selection: Selection | None = None
    noise_dimension: int
    curvature_noise_multiplier: float | None = None

    @property
    def records_per_unit(self) -> int:
        """How many records of one unit of privacy may enter a step."""
        person = self.description.schema.person
        return 1 if person is None else person.max_rows

    @property
    def dimension(self) -> int:
        """D, the length of phi."""
        return len(self.settings.initial_phi)

    def with_model(self, model: Model) -> "Mechanism":
        """Return the same run with a model of the user's own that has its functions.

        Raises
        ------
        ArgumentError
            If it is another model.
        """
        return make_mechanism(
            self.description.with_model(model),
            privacy=self.privacy,
            config=self.config,
            noise_multiplier=self.noise_multiplier,
            discreteness=self.discreteness,
            selection=self.selection,
            noise_dimension=self.noise_dimension,
            curvature_noise_multiplier=self.curvature_noise_multiplier,
        )

    def noise_source(self, streams: Streams, *, num_steps: int) -> NoiseSource:
        """Return exact noise for a real release, NumPy's for a simulation, none for a non-private run."""
        sigma, dimension = self.noise_multiplier, self.noise_dimension
        if sigma == 0.0:
            return NoNoise(dimension=dimension)
        return _gaussian_noise(streams, sigma=sigma, dimension=dimension, num_steps=num_steps)

    def curvature_noise(self, streams: Streams) -> NoiseSource:
        """Return the noise of the curvature's entries, per what one record may add to all of them."""
        if self.curvature_noise_multiplier is None:
            raise ArgumentError("this run releases no curvature.")
        size = curvature_size(self.description)
        return _gaussian_noise(streams, sigma=self.curvature_noise_multiplier, dimension=size, num_steps=1)

    def score_noise(self, streams: Streams) -> NoiseSource:
        """Return the noise of one private score, for `selection`; in units of the score's sensitivity."""
        if self.selection is None:
            raise ArgumentError("a run that is not one of several has no score.")
        sigma = self.selection.score_noise_multiplier
        return _gaussian_noise(streams, sigma=sigma, dimension=1, num_steps=1)

    def guarantee(
        self,
        noise: NoiseSource,
        *,
        num_steps: int,
        was_interrupted: bool = False,
        with_curvature: bool | None = None,
    ) -> Guarantee:
        """Return the guarantee of `num_steps` steps, accounted from the very numbers that they use.

        And of the curvature, with `with_curvature`; as a rule where these are all steps of a run that
        releases one, since it follows the last step.

        Raises
        ------
        PrivacyError
            If these steps spend more than the budget.
        """
        person = self.description.schema.person
        public = [
            "schema",
            "model, which treats every record by itself",
            "configuration (guide, steps, sampling rate, clip norm, preconditioner, learning rate, start)",
            "delta",
        ]
        if person is not None:
            public.append(f"which column tells persons apart ({person.column})")
        if self.settings.num_records is not None:
            public.append(f"the number of records, given as {self.settings.num_records}")
        if self.config.suggested_for is not None:
            public.append(
                f"the number of records, guessed as {self.config.suggested_for}, and predictors from which "
                "settings were chosen"
            )
        if self.selection is not None:
            public.append("the candidates among which these settings were chosen")
        if was_interrupted:
            public.append(_INTERRUPTED)
        simulated = self.noise_multiplier > 0 and not noise.is_private
        if with_curvature is None:
            with_curvature = num_steps == self.settings.num_steps
        curvature = self.curvature_noise_multiplier if with_curvature else None
        # Linear in the number of steps, so that the parts of an interrupted run add up to the whole.
        share = 1.0 if curvature is not None else num_steps / self.settings.num_steps
        return make_guarantee(
            budget=self.privacy,
            noise_multiplier=self.noise_multiplier,
            num_steps=num_steps,
            sampling_rate=self.settings.sampling_rate,
            clip_norm=self.settings.clip_norm,
            mechanism=noise.mechanism,
            discreteness=self.discreteness * share if noise.is_private else 0.0,
            assumed_public=tuple(public),
            reason_not_private=_SIMULATED if simulated else None,
            unit="one record" if person is None else "one person",
            records_per_unit=self.records_per_unit,
            selection=self.selection,
            curvature_noise_multiplier=curvature,
        )

    def to_release(
        self,
        trace: tuple[Array, Array],
        *,
        final_phi: Array,
        guarantee: Guarantee,
        sums: TraceSums | None = None,
    ) -> Release:
        """Return a trace, iterates and noisy gradients of shape (T, D), with all that belongs to it.

        Parameters
        ----------
        trace : pair of ndarray, shape (T, D)
            Iterates and noisy gradients.
        final_phi : ndarray, shape (D,)
            The iterate after the last step.
        guarantee : Guarantee
            Under which they were made.
        sums : TraceSums, optional
            Of the window, where the trace itself was not kept.
        """
        phi, noisy_gradient = trace
        prior_mean, prior_sd = self.description.phi_prior_moments()
        return Release(
            phi=phi,
            noisy_gradient=noisy_gradient,
            noise_multiplier=self.noise_multiplier,
            clip_norm=self.settings.clip_norm,
            sampling_rate=self.settings.sampling_rate,
            preconditioner=self.settings.preconditioner,
            learning_rate=self.settings.learning_rate,
            model_prior_mean=prior_mean,
            model_prior_sd=prior_sd,
            phi_labels=self.description.phi_labels,
            guarantee=guarantee,
            description=self.description,
            config=self.config,
            versions=package_versions(),
            sums=sums,
            final_phi=final_phi,
        )


def _gaussian_noise(streams: Streams, *, sigma: float, dimension: int, num_steps: int) -> NoiseSource:
    """Return exact Gaussian noise, or NumPy's where the streams are those of a simulation."""
    if streams.noise is not None:
        return SimulatedGaussianNoise(streams.noise, noise_multiplier=sigma, dimension=dimension)
    return DiscreteGaussianNoise(noise_multiplier=sigma, dimension=dimension, num_steps=num_steps)


def make_mechanism(
    description: ModelDescription,
    *,
    privacy: PrivacyBudget | NonPrivate,
    config: DPVIConfig,
    noise_multiplier: float | None = None,
    discreteness: float = 0.0,
    selection: Selection | None = None,
    noise_dimension: int | None = None,
    curvature_noise_multiplier: float | None = None,
) -> Mechanism:
    """Return a run that stays within its budget.

    Parameters
    ----------
    description : ModelDescription
        Model, schema and guide.
    privacy : PrivacyBudget or NonPrivate
        The budget.
    config : DPVIConfig
        Public settings.
    noise_multiplier, discreteness : float, optional
        Those of an earlier part of the same run; calibrated to the budget when omitted.
    selection : Selection, optional
        The run is one of a random number of which the best is published.
    noise_dimension : int, optional
        How many coordinates each step's noise has; D when omitted.
    curvature_noise_multiplier : float, optional
        That of an earlier part of the same run, given with `noise_multiplier`.

    Raises
    ------
    ArgumentError, SchemaError
        If a setting cannot be resolved for this model, or the budget is out of reach.
    PrivacyError
        If the noise that the budget needs cannot be drawn exactly.
    """
    if noise_dimension is None:
        noise_dimension = len(description.phi_labels)
    if config.curvature_share > 0.0:
        check_curvature_share(description, privacy=privacy, config=config, selection=selection)
    if noise_multiplier is None:
        person = description.schema.person
        shared: dict[str, Any] = {
            "num_steps": config.num_steps,
            "sampling_rate": config.sampling_rate,
            "dimension": noise_dimension,
            "records_per_unit": 1 if person is None else person.max_rows,
        }
        if config.curvature_share > 0.0:
            assert isinstance(privacy, PrivacyBudget)  # checked above
            noise_multiplier, curvature_noise_multiplier, discreteness = calibrated_split(
                privacy,
                share=config.curvature_share,
                curvature_size=curvature_size(description),
                **shared,
            )
        else:
            noise_multiplier, discreteness = calibrated_noise_multiplier(
                privacy, selection=selection, **shared
            )
    return Mechanism(
        description=description,
        config=config,
        privacy=privacy,
        settings=make_settings(description, config, noise_multiplier=noise_multiplier),
        noise_multiplier=noise_multiplier,
        discreteness=discreteness,
        selection=selection,
        noise_dimension=noise_dimension,
        curvature_noise_multiplier=curvature_noise_multiplier,
    )
