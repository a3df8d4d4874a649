"""Public settings of a DP-SGD variational run."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nadpvi.checks import check_count, check_positive, check_real
from nadpvi.errors import ArgumentError
from nadpvi.gradient_model.data import MIN_WINDOW
from nadpvi.gradient_model.sums import DEFAULT_BURN_IN, window_start
from nadpvi.guides import Guide, MeanField, check_guide, guide_from_dict

__all__ = ["DEFAULT_INITIAL_U", "DPVIConfig"]

DEFAULT_INITIAL_U = -3.0
_LARGEST_SHARE = 0.9  # of the budget, that may go to the curvature
# Beyond these a run would overflow, or spend its budget on a trace that nothing can be inferred from.
_SENSIBLE = {
    "clip_norm": (1e-9, 1e9),
    "preconditioner_u": (1e-6, 1e6),
}
_FARTHEST_MU, _FARTHEST_U = 1e6, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DPVIConfig:
    """Settings of DP-SGD variational inference. All of them are public and are stored in the release.

    Parameters
    ----------
    num_steps : int
        T >= 1, the number of noisy gradients; every one of them is accounted.
    sampling_rate : float
        kappa in (0, 1]: each record enters each step independently with this probability.
    clip_norm : float, optional
        C > 0, the L2 bound on one record's preconditioned gradient. When omitted, the model's own bound
        for its schema is used.
    preconditioner_u : float
        beta_u > 0: multiplies each record's gradient in the guide's scales before clipping and divides
        the noisy sum afterwards (Eq. 58). Locations have 1.
    learning_rate_constant : float, optional
        lambda_c > 0 of the heuristic step size (Eq. 55 and 13.2),
        ``sqrt(2) * lambda_c * beta / (sigma * C * sqrt(T * D))``; sqrt(D / 2) when omitted.
    learning_rate : float, optional
        Replaces the heuristic: the step size of a location; that of a scale is this times beta_u.
    monte_carlo_samples : int
        S >= 1, reparameterised draws per step, shared by the whole batch (Eq. 56). They come in pairs of
        opposite noise, so choose an even number (`nadpvi.guides.antithetic`).
    initial_mu : float or mapping of str to float, optional
        Start of the locations, on the unconstrained scale: the prior's mean when omitted; one number for all;
        or numbers by parameter label, the others starting at the prior's mean. From a far start the iterates'
        way is long, and the curvature is then fitted to the way rather than to the optimum's surroundings.
    initial_u : float or mapping of str to float
        Start of the scales, as the guide reads them: one number for all, or numbers by parameter label, the
        others starting at -3.
    learning_rate_factors : mapping of str to float, optional
        Positive factors of single coordinates' step sizes, by their label in phi, such as
        ``{"mu[variance]": 0.25}``.
    early_steps : int
        How many steps, from the first on, use a larger step size to come near the optimum. 0 for none.
    early_factor : float
        Factor >= 1 of the step size in those steps. Keep them out of the post-processing window.
    early_factors : mapping of str to float, optional
        Positive factors of single coordinates in those steps, by their label in phi, in place of
        `early_factor`. A factor far below 1 holds a coordinate back until the others have come near: a
        variance that is free from the start rises to explain that the coefficients are far off.
    box_mu, box_u : pair of float, optional
        Public bounds (low, high) of every location and of every other coordinate of phi: iterates are moved
        to the nearest point within, so that a run cannot explode.
    keep : "trace" or "sums"
        What the release holds: every step kept by `thin`, or, for very many parameters, the last step and the
        sums of the window, which are all that a diagonal curvature needs.
    thin : int
        With keep="trace", only each `thin`-th step is kept, counted from the last back.
    burn_in : float
        With keep="sums", the share of steps before the window, in [0, 1); it cannot be changed afterwards.
    curvature_share : float
        What part of the budget, as a share of the squared mu of Gaussian differential privacy, is spent on
        releasing the curvature: after the last step X' diag(w) X, the records' part of the Hessian in a
        regression's coefficients, is released with noise, for ``infer(method="dense")``. In [0, 0.9]; 0 for
        none, and about 0.2 where predictors are many or correlated.
    guide : Guide
        The variational family: `MeanField`, `FullRank` or `LowRank`.
    prior_term : "public" or "per_record"
        Where the prior and entropy terms enter. "public" adds them after the noise, times the sampling
        rate: no record count is needed and no clip norm spent on them. "per_record" spreads them over the
        records and clips them with each record's gradient, as Eq. 56 of the paper does.
    num_records : int, optional
        A *public* number of records N >= 1, for prior_term="per_record" only: each record carries 1/N of
        the prior. Never counted from a table; the guarantee lists it among what is assumed public.
    suggested_for : int, optional
        The number of records that `nadpvi.suggest_config` chose these settings for. Nothing depends on it;
        the guarantee lists it among what is assumed public.

    Examples
    --------
    >>> DPVIConfig(num_steps=300).num_steps
    300
    """

    num_steps: int = 1000
    sampling_rate: float = 0.1
    clip_norm: float | None = None
    preconditioner_u: float = 50.0
    learning_rate_constant: float | None = None
    learning_rate: float | None = None
    monte_carlo_samples: int = 10
    initial_mu: float | Mapping[str, float] | None = None
    initial_u: float | Mapping[str, float] = DEFAULT_INITIAL_U
    learning_rate_factors: Mapping[str, float] | None = None
    early_steps: int = 0
    early_factor: float = 1.0
    early_factors: Mapping[str, float] | None = None
    box_mu: tuple[float, float] | None = None
    box_u: tuple[float, float] | None = None
    keep: str = "trace"
    thin: int = 1
    burn_in: float = DEFAULT_BURN_IN
    curvature_share: float = 0.0
    guide: Guide = dataclasses.field(default_factory=MeanField)
    prior_term: str = "public"
    num_records: int | None = None
    suggested_for: int | None = None

    def __post_init__(self) -> None:
        for name in ("num_steps", "monte_carlo_samples", "thin"):
            object.__setattr__(self, name, check_count(name, getattr(self, name)))
        for name in ("preconditioner_u", "sampling_rate"):
            object.__setattr__(self, name, check_positive(name, getattr(self, name)))
        if self.sampling_rate > 1.0:
            raise ArgumentError(f"sampling_rate must be in (0, 1] (got {self.sampling_rate}).")
        for name in ("clip_norm", "learning_rate_constant", "learning_rate"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, check_positive(name, getattr(self, name)))
        for name, (low, high) in _SENSIBLE.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ArgumentError(f"{name} must be between {low:g} and {high:g} (got {value:g}).")
        object.__setattr__(self, "curvature_share", check_real("curvature_share", self.curvature_share))
        if not 0.0 <= self.curvature_share <= _LARGEST_SHARE:
            raise ArgumentError(
                f"curvature_share must be between 0 and {_LARGEST_SHARE:g} (got {self.curvature_share:g})."
            )
        self._check_start()
        self._check_step_sizes()
        self._check_kept()
        check_guide(self.guide)
        if self.learning_rate is not None and self.learning_rate_constant is not None:
            raise ArgumentError("learning_rate replaces learning_rate_constant; give only one of them.")
        self._check_prior_term()

    def _check_start(self) -> None:
        """Refuse a start or a box that is out of range, and a start outside the box."""
        for name, farthest in (("initial_mu", _FARTHEST_MU), ("initial_u", _FARTHEST_U)):
            object.__setattr__(self, name, _checked_start(name, getattr(self, name), farthest=farthest))
        for name in ("box_mu", "box_u"):
            object.__setattr__(self, name, _checked_box(name, getattr(self, name)))
        scales = self.initial_u.values() if isinstance(self.initial_u, Mapping) else [self.initial_u]
        if self.box_u is not None:
            for start in scales:
                if not self.box_u[0] <= start <= self.box_u[1]:
                    raise ArgumentError(f"initial_u must lie in box_u {self.box_u} (got {start:g}).")

    def _check_step_sizes(self) -> None:
        """Refuse factors of the step size that are not positive, or make the early steps smaller."""
        for name in ("learning_rate_factors", "early_factors"):
            object.__setattr__(self, name, _checked_factors(name, getattr(self, name)))
        if self.early_steps != 0 or isinstance(self.early_steps, bool):
            object.__setattr__(self, "early_steps", check_count("early_steps", self.early_steps))
        object.__setattr__(self, "early_factor", check_positive("early_factor", self.early_factor))
        if not 1.0 <= self.early_factor <= 1e6:
            raise ArgumentError(f"early_factor must be between 1 and 1e6 (got {self.early_factor:g}).")
        is_plain = self.early_factor == 1.0 and not self.early_factors
        if (self.early_steps == 0) != is_plain:
            raise ArgumentError("early_steps and early_factor (or early_factors) belong together.")
        if self.early_steps >= self.num_steps:
            raise ArgumentError(
                f"early_steps must be fewer than num_steps {self.num_steps} (got {self.early_steps})."
            )

    def _check_kept(self) -> None:
        """Refuse an unknown choice of what the release holds."""
        if self.keep not in ("trace", "sums"):
            raise ArgumentError(f'keep must be "trace" or "sums" (got {self.keep!r}).')
        if self.keep == "sums" and self.thin != 1:
            raise ArgumentError('thin is for keep="trace"; sums take every step of the window.')
        object.__setattr__(self, "burn_in", check_real("burn_in", self.burn_in))
        if not 0.0 <= self.burn_in < 1.0:
            raise ArgumentError(f"burn_in must be in [0, 1) (got {self.burn_in:g}).")
        if self.keep == "trace" and self.burn_in != DEFAULT_BURN_IN:
            raise ArgumentError('burn_in is set here for keep="sums" only; infer takes its own.')
        if self.keep == "sums":
            start = window_start(self.num_steps, burn_in=self.burn_in)
            if self.early_steps > start:
                raise ArgumentError(
                    f'early_steps must end before the window, which with keep="sums" starts at step {start} '
                    f"(got {self.early_steps}): raise burn_in."
                )
        elif self.thin > 1 and math.ceil(self.num_steps / self.thin) < MIN_WINDOW / (1.0 - DEFAULT_BURN_IN):
            raise ArgumentError(
                f"thin={self.thin} leaves {math.ceil(self.num_steps / self.thin)} of {self.num_steps} steps, "
                "too few to learn from: lower it."
            )

    def _check_prior_term(self) -> None:
        """Refuse a prior term that is unknown, or that lacks its record count or has one for nothing."""
        if self.prior_term not in ("public", "per_record"):
            raise ArgumentError(f'prior_term must be "public" or "per_record" (got {self.prior_term!r}).')
        for name in ("num_records", "suggested_for"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, check_count(name, getattr(self, name)))
        if self.prior_term == "per_record" and self.num_records is None:
            raise ArgumentError(
                'prior_term="per_record" needs num_records, a number of records that is public already; '
                'prior_term="public" needs none.'
            )
        if self.prior_term == "public" and self.num_records is not None:
            raise ArgumentError('num_records is used with prior_term="per_record" only; leave it out.')

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON types."""
        data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        data["guide"] = self.guide.to_dict()
        for name in ("box_mu", "box_u"):
            data[name] = None if data[name] is None else list(data[name])
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "DPVIConfig":
        """Return the settings that `to_dict` gave; an unknown key is refused."""
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(set(data) - known):
            raise ArgumentError(f"unknown settings {unknown}; known ones are {sorted(known)}.")
        settings = dict(data)
        if "guide" in settings:
            settings["guide"] = guide_from_dict(settings["guide"])
        return cls(**settings)


def _checked_start(name: str, value: object, *, farthest: float) -> Any:
    """Return a start, one number or numbers by label, that is not absurdly far away; None as it is."""
    if isinstance(value, Mapping):
        return {str(key): _within(f"{name} of {key}", one, farthest=farthest) for key, one in value.items()}
    return None if value is None and name == "initial_mu" else _within(name, value, farthest=farthest)


def _within(name: str, value: object, *, farthest: float) -> float:
    """Return a number that is at most `farthest` from 0, or raise."""
    number = check_real(name, value)
    if not -farthest <= number <= farthest:
        raise ArgumentError(f"{name} must be between {-farthest:g} and {farthest:g} (got {number:g}).")
    return number


def _checked_factors(name: str, value: object) -> dict[str, float] | None:
    """Return factors by label, all positive, or raise; None as it is."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ArgumentError(f'{name} must map labels of phi to factors: {{"u[a]": 2}}.')
    return {str(label): check_positive(f"{name} of {label}", factor) for label, factor in value.items()}


def _checked_box(name: str, box: object) -> tuple[float, float] | None:
    """Return a pair of bounds as floats, None as it is, or raise."""
    if box is None:
        return None
    if not isinstance(box, tuple | list) or len(box) != 2:
        raise ArgumentError(f"{name} must be a pair (low, high) (got {box!r}).")
    low, high = check_real(name, box[0]), check_real(name, box[1])
    if low >= high:
        raise ArgumentError(f"{name} must have low below high (got {low:g} and {high:g}).")
    return low, high
