"""Public settings of a DP-SGD variational run."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from nadpvi.checks import check_count, check_positive, check_real
from nadpvi.errors import ArgumentError
from nadpvi.guides import MeanField

__all__ = ["DPVIConfig"]

# Beyond these a run would overflow, or spend its budget on a trace that nothing can be inferred from.
_SENSIBLE = {
    "clip_norm": (1e-9, 1e9),
    "preconditioner_u": (1e-6, 1e6),
    "initial_mu": (-1e6, 1e6),
    "initial_u": (-30.0, 30.0),
}


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
        S >= 1, reparameterised draws per step, shared by the whole batch (Eq. 56).
    initial_mu, initial_u : float
        Start of every location and every scale, on the unconstrained scale.
    guide : MeanField
        The variational family.
    prior_term : "public" or "per_record"
        Where the prior and entropy terms enter. "public" adds them after the noise, times the sampling
        rate: no record count is needed and no clip norm spent on them. "per_record" spreads them over the
        records and clips them with each record's gradient, as Eq. 56 of the paper does.
    num_records : int, optional
        A *public* number of records N >= 1, for prior_term="per_record" only: each record carries 1/N of
        the prior. Never counted from a table; the guarantee lists it among what is assumed public.

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
    initial_mu: float = 0.0
    initial_u: float = -3.0
    guide: MeanField = dataclasses.field(default_factory=MeanField)
    prior_term: str = "public"
    num_records: int | None = None

    def __post_init__(self) -> None:
        for name in ("num_steps", "monte_carlo_samples"):
            object.__setattr__(self, name, check_count(name, getattr(self, name)))
        for name in ("preconditioner_u", "sampling_rate"):
            object.__setattr__(self, name, check_positive(name, getattr(self, name)))
        if self.sampling_rate > 1.0:
            raise ArgumentError(f"sampling_rate must be in (0, 1] (got {self.sampling_rate}).")
        for name in ("clip_norm", "learning_rate_constant", "learning_rate"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, check_positive(name, getattr(self, name)))
        for name in ("initial_mu", "initial_u"):
            object.__setattr__(self, name, check_real(name, getattr(self, name)))
        for name, (low, high) in _SENSIBLE.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ArgumentError(f"{name} must be between {low:g} and {high:g} (got {value:g}).")
        if not isinstance(self.guide, MeanField):
            raise ArgumentError(f"guide must be a MeanField (got {type(self.guide).__name__}).")
        if self.learning_rate is not None and self.learning_rate_constant is not None:
            raise ArgumentError("learning_rate replaces learning_rate_constant; give only one of them.")
        self._check_prior_term()

    def _check_prior_term(self) -> None:
        """Refuse a prior term that is unknown, or that lacks its record count or has one for nothing."""
        if self.prior_term not in ("public", "per_record"):
            raise ArgumentError(f'prior_term must be "public" or "per_record" (got {self.prior_term!r}).')
        if self.num_records is not None:
            object.__setattr__(self, "num_records", check_count("num_records", self.num_records))
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
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "DPVIConfig":
        """Return the settings that `to_dict` gave; an unknown key is refused."""
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(set(data) - known):
            raise ArgumentError(f"unknown settings {unknown}; known ones are {sorted(known)}.")
        settings = dict(data)
        if "guide" in settings:
            settings["guide"] = MeanField.from_dict(settings["guide"])
        return cls(**settings)
