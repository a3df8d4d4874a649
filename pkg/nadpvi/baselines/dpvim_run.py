"""DPVIm's private part: a table in, iterates out, on the package's own privacy core. Private side."""

import secrets

from nadpvi.baselines.dpvim_trace import DPVImRelease
from nadpvi.config import DPVIConfig
from nadpvi.containers.release import Release
from nadpvi.containers.storage import check_netcdf
from nadpvi.description import ModelDescription
from nadpvi.errors import ArgumentError
from nadpvi.interrupts import RunInterrupted
from nadpvi.mechanism import Mechanism, make_mechanism
from nadpvi.models import Model
from nadpvi.privacy.budget import NonPrivate, PrivacyBudget
from nadpvi.privacy.ledger import Ledger
from nadpvi.privacy.randomness import check_seed, make_streams
from nadpvi.private.aligned import aligned_step
from nadpvi.private.curator import check_ledger, check_types
from nadpvi.private.dry_run import check_model
from nadpvi.private.execution import Booking, Part, carry_out
from nadpvi.private.inputs import Reading, read_records
from nadpvi.private.records import Records
from nadpvi.schema import Schema
from nadpvi.tables import TableLike

__all__ = ["DPVImInterrupted", "aligned_mechanism", "as_dpvim", "dpvim_release"]


class DPVImInterrupted(KeyboardInterrupt):
    """Ctrl-C ended a DPVIm run after some of its steps.

    Attributes
    ----------
    release : DPVImRelease
        The partial trace, with the guarantee of the steps that were drawn. Save it: that much is spent.
    """

    def __init__(self, release: DPVImRelease) -> None:
        super().__init__(f"interrupted after {release.guarantee.num_steps} steps")
        self.release = release


def dpvim_release(
    model: Model,
    table: TableLike | Records,
    *,
    schema: Schema,
    privacy: PrivacyBudget | NonPrivate,
    config: DPVIConfig | None = None,
    insecure_seed: int | None = None,
    ledger: Ledger | None = None,
    label: str = "dpvim",
    progress: bool = False,
    collapse: bool = False,
) -> DPVImRelease:
    """Return the iterates of DP-SGD with aligned gradients, DPVIm, under one differential privacy guarantee.

    Only a record's gradient in the K locations is clipped, to norm C, summed and noised; the gradient in the
    scales is its image (`nadpvi.private.aligned`). Subsampling, noise, accounting, units of privacy and
    ledger are those of `nadpvi.release`, and so is the promise: (epsilon, delta)-differential privacy for
    the neighbouring relation of `privacy`, per record or, with ``schema.person``, per person, for
    everything that is returned.

    Where this departs from the published code: batches are Poisson samples, as the accounting supposes, and
    sums are never divided by a batch's size; the prior's gradient is public and added after the noise,
    times the sampling rate, in place of 1/N a record within the clip; steps are plain, with `config`'s step
    sizes, in place of Adam.

    Parameters
    ----------
    model, table, schema, privacy, insecure_seed, ledger, label, progress, collapse
        As in `nadpvi.release`.
    config : DPVIConfig, optional
        Public settings. ``monte_carlo_samples`` must be 1: the image is that of one draw. ``clip_norm``
        bounds a location gradient alone, so that the model's own bound, its default, clips nothing.
        ``preconditioner_u`` has no part in clipping or noise: it is how much larger the steps of the scales
        are. The noise of such a step is that of a location's times ``preconditioner_u * ds/du``.

    Raises
    ------
    ArgumentError, SchemaError
        If a public argument is unsuitable; `table` has not been opened.
    PrivacyError
        If the ledger's cap does not allow the run; `table` has not been opened.
    DataError
        If the table does not follow the schema; no budget has been spent.
    DPVImInterrupted
        On Ctrl-C after at least one step.

    References
    ----------
    Jalko, Prediger, Honkela and Kaski (2023). DPVIm: Differentially private variational inference improved.
    Transactions on Machine Learning Research. arXiv:2210.15961.
    """
    check_netcdf()
    mechanism = aligned_mechanism(model, schema=schema, privacy=privacy, config=config)
    check_ledger(ledger)
    if insecure_seed is not None:
        check_seed("insecure_seed", insecure_seed)
    num_steps = mechanism.settings.num_steps
    check_model(mechanism.description, num_draws=1)
    streams = make_streams(insecure_seed=insecure_seed, secret=secrets.token_bytes(32))
    noise = mechanism.noise_source(streams, num_steps=num_steps)
    guarantee = mechanism.guarantee(noise, num_steps=num_steps)
    if ledger is not None:
        ledger.check(guarantee)
    reading = Reading(collapse=collapse)
    records = read_records(table, mechanism.description, reading=reading, rng=streams.rows)
    part = Part(
        mechanism=mechanism,
        records=records,
        noise=noise,
        streams=streams,
        progress=progress,
        take_step=aligned_step,
    )
    entry = None if ledger is None else ledger.reserve(guarantee, label=label)
    try:
        return as_dpvim(carry_out(part, guarantee=guarantee, booking=Booking(ledger, entry)))
    except RunInterrupted as stopped:
        raise DPVImInterrupted(as_dpvim(stopped.release)) from None


def aligned_mechanism(
    model: Model, *, schema: Schema, privacy: PrivacyBudget | NonPrivate, config: DPVIConfig | None
) -> Mechanism:
    """Return a run of aligned steps that stays within its budget; its noise has K coordinates.

    Raises
    ------
    ArgumentError, SchemaError
        If an argument is of the wrong kind, or a setting does not suit aligned gradients.
    """
    settings = DPVIConfig(monte_carlo_samples=1) if config is None else config
    check_types(model, schema=schema, privacy=privacy, config=settings)
    if settings.monte_carlo_samples != 1:
        raise ArgumentError(
            "monte_carlo_samples must be 1 for DPVIm, whose scale gradient is the image of the location "
            f"gradient at one draw (got {settings.monte_carlo_samples}); dataclasses.replace(config, "
            "monte_carlo_samples=1)."
        )
    if settings.prior_term != "public" or settings.keep != "trace" or settings.curvature_share:
        raise ArgumentError(
            'DPVIm needs prior_term="public", keep="trace" and curvature_share=0, as they are by default.'
        )
    description = ModelDescription(model=model, schema=schema, guide=settings.guide)
    return make_mechanism(
        description, privacy=privacy, config=settings, noise_dimension=len(description.names)
    )


def as_dpvim(release: Release) -> DPVImRelease:
    """Return what an aligned run gave, as what it is: its scales' noise is not a `Release`'s."""
    assert release.description is not None
    assert release.config is not None
    assert release.guarantee is not None
    return DPVImRelease(
        phi=release.phi,
        final_phi=release.final_phi,
        noise_multiplier=release.noise_multiplier,
        clip_norm=release.clip_norm,
        sampling_rate=release.sampling_rate,
        description=release.description,
        config=release.config,
        guarantee=release.guarantee,
        versions=release.versions,
    )
