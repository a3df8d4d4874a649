"""Whether the parts of a release fit each other, and its guarantee is that of its run and adds up."""

import numpy as np

from nadpvi.config import DPVIConfig
from nadpvi.containers.release_checks import check_settings, check_values
from nadpvi.containers.release_parts import ReleaseParts
from nadpvi.curvature_share import curvature_bounds, num_coefficients
from nadpvi.description import ModelDescription
from nadpvi.errors import ArgumentError
from nadpvi.gradient_model.sums import window_start
from nadpvi.privacy.guarantee import Guarantee
from nadpvi.privacy.guarantee_check import check_stated
from nadpvi.privacy.parameters import ONE_PERSON, ONE_RECORD

__all__ = ["check_parts", "check_promise", "check_run"]


def check_parts(release: ReleaseParts) -> None:
    """Raise `ArgumentError` if parts of a release, each sound by itself, contradict each other."""
    num_steps, dimension = release.phi.shape
    check_settings(
        noise_multiplier=release.noise_multiplier,
        clip_norm=release.clip_norm,
        sampling_rate=release.sampling_rate,
        preconditioner=release.preconditioner,
        guarantee=release.guarantee,
    )
    if release.final_phi.shape != (dimension,):
        raise ArgumentError(f"final_phi must have shape {(dimension,)} (got {release.final_phi.shape}).")
    check_values(
        learning_rate=release.learning_rate,
        model_prior_sd=release.model_prior_sd,
        final_phi=release.final_phi,
    )
    if release.sums is not None and release.sums.num_parameters != dimension:
        raise ArgumentError(f"sums must be of {dimension} coordinates.")
    if release.description is not None and release.phi_labels != release.description.phi_labels:
        raise ArgumentError("phi_labels must be those of the description's model and guide.")
    check_promise(release.guarantee, description=release.description)
    check_run(
        release.guarantee,
        config=release.config,
        num_kept=num_steps,
        window_steps=None if release.sums is None else release.sums.num_steps,
    )
    _check_curvature(release)


def _check_curvature(release: ReleaseParts) -> None:
    """Refuse a curvature that a run's guarantee does not count, or with other noise than it says.

    Raises
    ------
    ArgumentError
    """
    guarantee, std, description = release.guarantee, release.curvature_std, release.description
    if std is None or guarantee is None or description is None:
        return
    sigma, config = guarantee.curvature_noise_multiplier, release.config
    if sigma is None:
        if guarantee.is_private:
            raise ArgumentError("guarantee must count the curvature that is released beside the trace.")
        return
    size = num_coefficients(description)
    if std.shape != (size, size):
        raise ArgumentError(f"curvature must have shape {(size, size)} (got {std.shape}).")
    if config is not None and (guarantee.num_steps != config.num_steps or not config.curvature_share):
        raise ArgumentError(
            "guarantee must be of all steps of a run with a curvature_share: the curvature follows the last."
        )
    wanted = sigma * curvature_bounds(description, release.phi).sensitivity
    if not np.allclose(std, wanted, rtol=1e-6, atol=0.0):
        raise ArgumentError(
            f"curvature_std must be the {wanted:.6g} that its guarantee says (got {std.min():.6g} to "
            f"{std.max():.6g})."
        )


def check_promise(guarantee: Guarantee | None, *, description: ModelDescription | None) -> None:
    """Refuse a guarantee that is below what it says of its run, or protects another unit than the schema's.

    Raises
    ------
    ArgumentError
        If the epsilon on record is plainly too small (`nadpvi.privacy.guarantee_check.check_stated`), or the
        unit is not that of the schema.
    """
    if guarantee is None:
        return
    if description is not None:
        person = description.schema.person
        unit, most = (ONE_RECORD, 1) if person is None else (ONE_PERSON, person.max_rows)
        if (guarantee.unit, guarantee.records_per_unit) != (unit, most):
            raise ArgumentError(
                f"guarantee protects {guarantee.unit} (records_per_unit {guarantee.records_per_unit}), but "
                f"its schema is for {unit} (records_per_unit {most})."
            )
    check_stated(guarantee)


def check_run(
    guarantee: Guarantee | None, *, config: DPVIConfig | None, num_kept: int, window_steps: int | None
) -> None:
    """Refuse a guarantee of fewer steps than a release shows, or of other settings than its configuration.

    Parameters
    ----------
    guarantee : Guarantee or None
        With None there is nothing to check.
    config : DPVIConfig or None
        Settings of the run; an interrupted one has drawn fewer steps than they say.
    num_kept : int
        How many steps are in the release one by one.
    window_steps : int or None
        How many are in its sums, where it keeps sums.

    Raises
    ------
    ArgumentError
        If they contradict each other.
    """
    if guarantee is None:
        return
    least = num_kept if window_steps is None else window_steps
    if config is not None:
        if window_steps is not None:
            least += window_start(config.num_steps, burn_in=config.burn_in)
        elif config.thin > 1:
            # All but the first and, after an interruption, the last are `thin` steps apart.
            least = (num_kept - 2) * config.thin + 2
        for name in ("sampling_rate", "clip_norm"):
            stated, set_to = getattr(guarantee, name), getattr(config, name)
            if set_to is not None and stated != set_to:
                raise ArgumentError(f"guarantee has {name} {stated:g}, but its configuration {set_to:g}.")
        if guarantee.num_steps > config.num_steps:
            raise ArgumentError(
                f"guarantee has num_steps {guarantee.num_steps}, but its configuration {config.num_steps}."
            )
        for number in (config.num_records, config.suggested_for):
            if number is not None and not any(str(number) in item for item in guarantee.assumed_public):
                raise ArgumentError(f"guarantee must name the number of records, {number}, as public.")
    if guarantee.num_steps < least:
        raise ArgumentError(
            f"guarantee must be that of this trace: it is for {guarantee.num_steps} steps, and {least} are "
            "seen."
        )
