"""Settings of a run from public information alone: `suggest_config`. Reads no data and costs no privacy.

Write h for the curvature of the negative ELBO in a location, C for the clip norm, sigma for the noise
multiplier, kappa for the sampling rate, n for the steps of the window and w = sigma C / (kappa sqrt(n)) for
the noise of the window's mean gradient. The trace alone tells a location to w / h, whatever the number of
steps: sigma grows with their root. Iterates are scattered around the optimum with sd R w / h, where ``R^2 = n
lambda kappa h / 2``, and their regression tells the curvature to a relative error of 1 / R. A small R leaves
the curvature unknown and the window unrelaxed; a large one scatters the iterates to where the loss is no
longer quadratic. So R^2 is what fixes every location's step size, smaller where the scatter would exceed the
prior's sd; and the number of steps is the smallest at which the fastest direction is still steady.

Clip norm and preconditioner are chosen in `nadpvi.planning.clipping`, the curvature's share of the budget in
`nadpvi.planning.share`.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nadpvi.bijectors import inverse_softplus
from nadpvi.checks import check_count
from nadpvi.config import DPVIConfig
from nadpvi.curvature_share import num_coefficients
from nadpvi.description import ModelDescription
from nadpvi.errors import ArgumentError, ModelError
from nadpvi.gradient_model.sums import DEFAULT_BURN_IN, window_start
from nadpvi.guides import Guide, MeanField
from nadpvi.made_up import Covariates, check_covariates
from nadpvi.models.base import Model, SimulatingModel
from nadpvi.planning.clipping import choose_clipping
from nadpvi.planning.predictive import Predictive, predict_gradients
from nadpvi.planning.rounding import rounded
from nadpvi.planning.share import choose_curvature_share
from nadpvi.privacy.budget import NonPrivate, PrivacyBudget
from nadpvi.privacy.calibration import calibrated_noise_multiplier
from nadpvi.privacy.randomness import check_seed
from nadpvi.schema import Schema

__all__ = ["suggest_config"]

Array = NDArray[np.float64]

_SCATTER = 14.0  # R^2
_PRIOR_SCATTER = 4.0  # the most that scatter may be in all locations together, as squares in prior sds
_SCALE_SCATTER = 0.4  # the most that the scatter of a scale's logarithm may be
_HELD_BACK, _HELD_SHARE = 1e-3, 2 / 3  # of its step size, and of the burn-in
_STEADY = 0.5  # the most that lambda kappa h may be, in the fastest direction
_FEWEST_STEPS, _MOST_STEPS = 300, 2000
_SAMPLING_RATES = (0.1, 0.2, 0.5, 1.0)
# Below this noise the amplification by sampling is no longer that of the central limit, and budget is wasted.
_LEAST_NOISE_MULTIPLIER = 1.5
_SURE_SHARE = 0.95  # of tables whose fastest direction is steady


def suggest_config(
    model: Model,
    privacy: PrivacyBudget | NonPrivate,
    *,
    schema: Schema,
    num_records: int,
    covariates: Covariates | None = None,
    guide: Guide | None = None,
    seed: int = 0,
) -> DPVIConfig:
    """Return settings for a model, a schema and a budget, chosen without looking at any record.

    Clip norm, preconditioner, step sizes, start of the scales, number of steps and sampling rate come from
    gradients of made-up records under the prior. The same arguments give the same settings, which are public
    like every DPVIConfig. Regressions spend a fifth of the budget on their curvature,
    which `nadpvi.infer` then uses. `nadpvi.tuning.tune` tries settings around these on whole simulated runs.

    Parameters
    ----------
    model : Model
        It must be able to `simulate`. Its prior says which tables are plausible.
    privacy : PrivacyBudget or NonPrivate
        The budget of the run.
    schema : Schema
        The public description of the table.
    num_records : int
        A guess at N, from public knowledge; never count the table for it. A factor of two does little harm.
    covariates : DataFrame or callable, optional
        Where made-up records have their predictors from: a table that is public, such as an earlier survey's,
        or a simulator ``covariates(num_records, rng)``; never the private table. When omitted they are made
        up by the schema: levels equally frequent, numbers uniform within bounds, which real ones seldom are.
    guide : Guide, optional
        The variational family; `MeanField` when omitted.
    seed : int
        Of the made-up records. It is no secret.

    Raises
    ------
    ArgumentError, SchemaError, ModelError
        If an argument is unsuitable, or the model cannot simulate.

    Examples
    --------
    >>> schema = Schema.from_dict({"columns": {"well": {"kind": "binary", "levels": ["no", "yes"]}}})
    >>> from nadpvi.models import BernoulliBeta
    >>> found = suggest_config(BernoulliBeta(outcome="well", prior_alpha=10.0, prior_beta=10.0),
    ...     PrivacyBudget(epsilon=0.1, delta=1e-5), schema=schema, num_records=5000)
    >>> found.num_steps, 0.7 < found.clip_norm < 0.8
    (300, True)
    """
    num_records = check_count("num_records", num_records)
    check_covariates(covariates)
    check_seed("seed", seed)
    if not isinstance(privacy, PrivacyBudget | NonPrivate):
        raise ArgumentError(f"privacy must be a PrivacyBudget (got {type(privacy).__name__}).")
    guide = MeanField() if guide is None else guide
    description = ModelDescription(model=model, schema=schema, guide=guide)
    if not isinstance(model, SimulatingModel) or description.design.outcome is None:
        raise ModelError(
            f"settings cannot be chosen for {type(model).__name__}, which cannot simulate an outcome: give "
            "config=DPVIConfig(clip_norm=...) in place of num_records."
        )
    base = DPVIConfig(guide=guide)
    found = predict_gradients(
        description,
        num_records=num_records,
        num_draws=base.monte_carlo_samples,
        rng=np.random.default_rng(seed),
        covariates=covariates,
    )
    share = choose_curvature_share(description, privacy, covariates=covariates)
    noise = _Noise(description, privacy, share)
    rate = noise.sampling_rate()
    noise_of_window = noise.of_window(_FEWEST_STEPS, rate=rate)
    clipping = choose_clipping(found, noise=noise_of_window)
    window_noise = clipping.clip_norm * noise_of_window
    steps, num_steps = _choose_steps(found, window_noise=window_noise)
    # A scale's own curvature is 2, or 1/2 for the variance: its R^2 shall be the same.
    start = inverse_softplus(found.typical**-0.5)
    scale_curvature = float(np.median(MeanField().scale_curvature(start)))
    scale_error = 0.5 * window_noise / clipping.preconditioner_u
    scatter = min(_SCATTER, (_SCALE_SCATTER / max(scale_error, 1e-300)) ** 2)
    scale_step = 2.0 * scatter / (_window(num_steps) * scale_curvature) / clipping.preconditioner_u
    rate_base = rounded(float(np.exp(np.log(steps).mean())) / rate)
    labels = description.phi_labels
    wanted = [*steps, *[scale_step] * (len(labels) - len(steps))]
    return DPVIConfig(
        num_steps=num_steps,
        sampling_rate=rate,
        clip_norm=clipping.clip_norm,
        preconditioner_u=clipping.preconditioner_u,
        learning_rate=rate_base,
        learning_rate_factors={
            label: rounded(step / (rate * rate_base)) for label, step in zip(labels, wanted, strict=True)
        },
        initial_u={name: rounded(float(u)) for name, u in zip(description.names, start, strict=True)},
        **_held_back(description, num_steps=num_steps),
        curvature_share=share,
        guide=guide,
        suggested_for=num_records,
    )


class _Noise(NamedTuple):
    """The noise that a budget asks for."""

    description: ModelDescription
    privacy: PrivacyBudget | NonPrivate
    curvature_share: float

    def multiplier(self, num_steps: int, *, rate: float) -> float:
        """Return sigma, nearly: shares of a budget are shares of sigma^-2."""
        person = self.description.schema.person
        shared: dict[str, Any] = {"num_steps": num_steps, "sampling_rate": rate}
        sigma, _ = calibrated_noise_multiplier(
            self.privacy,
            dimension=len(self.description.phi_labels),
            records_per_unit=1 if person is None else person.max_rows,
            **shared,
        )
        return sigma / math.sqrt(1.0 - self.curvature_share)

    def sampling_rate(self) -> float:
        """Return the least sampling rate at which subsampling amplifies privacy as it should."""
        if isinstance(self.privacy, NonPrivate):
            return _SAMPLING_RATES[0]
        for rate in _SAMPLING_RATES:
            if self.multiplier(_FEWEST_STEPS, rate=rate) >= _LEAST_NOISE_MULTIPLIER:
                return rate
        return _SAMPLING_RATES[-1]

    def of_window(self, num_steps: int, *, rate: float) -> float:
        """Return w / C, the sd of the window's mean gradient over kappa, per clip norm."""
        return self.multiplier(num_steps, rate=rate) / (rate * math.sqrt(_window(num_steps)))


def _choose_steps(found: Predictive, *, window_noise: float) -> tuple[Array, int]:
    """Return lambda kappa of each location, shape (K,), and the number of steps.

    Parameters
    ----------
    found : Predictive
    window_noise : float
        w.
    """
    typical = found.typical
    told = (found.prior_sd * typical / max(window_noise, 1e-300)) ** 2
    scatter = np.minimum(told * _PRIOR_SCATTER / len(typical), _SCATTER)
    steps = 2.0 * scatter / (_window(_FEWEST_STEPS) * typical)
    root = np.sqrt(steps)
    last = len(steps) - 1
    fastest = [
        linalg.eigvalsh(matrix * np.outer(root, root), subset_by_index=[last, last])[0]
        for matrix in found.curvature
    ]
    excess = float(np.quantile(fastest, _SURE_SHARE)) / _STEADY
    if excess <= 1.0:
        return steps, _FEWEST_STEPS
    return steps / excess, min(100 * math.ceil(_FEWEST_STEPS * excess / 100), _MOST_STEPS)


def _held_back(description: ModelDescription, *, num_steps: int) -> dict[str, Any]:
    """Return settings that hold what is no coefficient, such as a variance, until the coefficients are near.

    Its optimum depends on how far off they are, and it returns from there more slowly than they. It then has
    a third of the burn-in for its own way.
    """
    extras = description.names[num_coefficients(description) :]
    if not extras:
        return {}
    held = {f"{part}[{name}]": _HELD_BACK for name in extras for part in ("mu", "u")}
    burn_in = window_start(num_steps, burn_in=DEFAULT_BURN_IN)
    return {"early_steps": int(_HELD_SHARE * burn_in), "early_factors": held}


def _window(num_steps: int) -> float:
    """Return n, the steps of the window."""
    return (1.0 - DEFAULT_BURN_IN) * num_steps
