"""A plan: what a run is expected to give, and how it reads."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nadpvi.markup import html_frame, html_note, html_pairs
from nadpvi.planning.wording import duration, number_range, shown_names, to_json

__all__ = ["Plan"]

Array = NDArray[np.float64]

_MOST_ROWS = 20
_MOST_UNINFORMED = 20
# A parameter that keeps more of its prior's sd is not informed: a fifth less variance is worth no budget.
_UNINFORMED = 0.9
_COLUMNS = {
    "prior_sd": "{:.3g}",
    "non_private_sd": "{:.3g}",
    "noise_sd": "{:.3g}",
    "private_sd": "{:.3g}",
    "privacy_share": "{:.0%}",
    "noise_over_prior": "{:.2f}",
    "margin": "{:.3g}",
    "relaxation_steps": "{:.0f}",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """What a run is expected to give. No record was read; make one with `nadpvi.plan`.

    Arrays over K parameters are on the unconstrained scale; arrays over D = 2 K coordinates of phi hold the
    locations first, then the scales.

    Parameters
    ----------
    epsilon, delta, neighbouring_relation
        The budget; infinity, 0 and "none" for a run without noise.
    protects : str
        The unit of privacy, in words: "one record", or "one person, up to 3 records each".
    num_records : int
        N, the guess that the plan rests on.
    num_steps, num_window_steps, sampling_rate, clip_norm, noise_multiplier
        T, the steps after burn-in, kappa, C and sigma (of all the records of one person, where the schema
        declares persons).
    preconditioner_u, initial_u, curvature_share, suggested_for
        Settings of the scales, the budget's share for a curvature, and the number of records for which
        `nadpvi.suggest_config` chose the settings, None where they were given.
    is_heuristic : bool
        Whether step sizes are the heuristic's, which `learning_rate_constant` scales.
    names, phi_labels : tuple of str
        Labels of the K parameters and of the D coordinates.
    noise_std, learning_rate : ndarray, shape (D,)
        sigma C / beta, and lambda.
    relaxation_steps : ndarray, shape (D,)
        1 / (lambda kappa a), a the expected curvature: steps in which a distance to the optimum shrinks to a
        third.
    prior_sd, non_private_sd : ndarray, shape (K,)
        Standard deviation before any data, and expected of the posterior without privacy noise.
    noise_sd, private_sd : ndarray, shape (K,)
        What the noise adds to the latter, and both together: the posterior that a noise-aware method with the
        full curvature and the model's prior can reach; ``private_sd**2 = non_private_sd**2 + noise_sd**2``.
    trace_sd : ndarray, shape (K,)
        Standard deviation of the optimum's location as the trace alone gives it, without any prior.
    optimum_sd : ndarray, shape (K,), or None
        Expected sd of the best posterior at the same budget: that of all sufficient statistics, released once
        by a Gaussian mechanism. Median over tables from the prior; None where `optimum_reason` says why.
    margin : ndarray, shape (K,)
        How many times the information that the parameter needs for its signal to equal the noise. Below 1 it
        drowns; a level that is `margin` times rarer than its column's equal share drowns too.
    drowning_count : float or None
        How many records a level needs for its coefficient not to drown; None if no parameter is a level's.
    scale_error : ndarray, shape (K,)
        Relative error that the noise leaves in the guide's own standard deviation, to first order: more where
        the scales wander far.
    largest_step : float
        Largest step times curvature over all directions; from 1 on a step overshoots, from 2 on it diverges.
    clipped_share : float
        Share of made-up records whose gradient at the optimum is longer than the clip norm.
    typical_norm : float
        Norm that 99 % of made-up records' gradients stay below.
    file_bytes : int
        Size of the release's file.
    run_seconds : float or None
        Expected time of the run on this machine, from `num_timed_steps` of its steps; None if not measured.
    num_timed_steps : int
        How many made-up steps were timed.
    optimum_reason : str
        Why there is no `optimum_sd`; empty where there is one.
    warnings : tuple of str
        What is likely to go wrong, one line each.
    """

    epsilon: float
    delta: float
    neighbouring_relation: str
    protects: str
    num_records: int
    num_steps: int
    num_window_steps: int
    sampling_rate: float
    clip_norm: float
    noise_multiplier: float
    preconditioner_u: float
    initial_u: Array
    curvature_share: float
    suggested_for: int | None
    is_heuristic: bool
    names: tuple[str, ...]
    phi_labels: tuple[str, ...]
    noise_std: Array
    learning_rate: Array
    relaxation_steps: Array
    prior_sd: Array
    non_private_sd: Array
    noise_sd: Array
    private_sd: Array
    trace_sd: Array
    optimum_sd: Array | None
    margin: Array
    drowning_count: float | None
    scale_error: Array
    largest_step: float
    clipped_share: float
    typical_norm: float
    file_bytes: int
    run_seconds: float | None
    num_timed_steps: int
    optimum_reason: str
    warnings: tuple[str, ...]

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                array = np.array(value, dtype=np.float64)
                array.setflags(write=False)
                object.__setattr__(self, field.name, array)

    @property
    def over_optimum(self) -> Array | None:
        """`private_sd` over `optimum_sd`, shape (K,): 1 if nothing is wasted. None without the latter."""
        return None if self.optimum_sd is None else self.private_sd / self.optimum_sd

    @property
    def uninformed(self) -> tuple[str, ...]:
        """Parameters that the run cannot inform: `private_sd` stays above 0.9 of the prior's sd."""
        return tuple(name for name, told in zip(self.names, self._is_told(), strict=True) if not told)

    def _is_told(self) -> NDArray[np.bool_]:
        """Return whether each parameter's sd is expected to fall noticeably below the prior's, shape (K,)."""
        is_told: NDArray[np.bool_] = self.private_sd <= _UNINFORMED * self.prior_sd
        return is_told

    def to_frame(self) -> pd.DataFrame:
        """Return one row a parameter: its standard deviations, their ratios, and its speed.

        `privacy_share` is the part of the private variance that the noise adds; the rest is the data's own.
        """
        half = len(self.names)
        columns = {
            "prior_sd": self.prior_sd,
            "non_private_sd": self.non_private_sd,
            "noise_sd": self.noise_sd,
            "private_sd": self.private_sd,
            "privacy_share": (self.noise_sd / self.private_sd) ** 2,
            "noise_over_prior": self.noise_sd / self.prior_sd,
            "noise_over_non_private": self.noise_sd / self.non_private_sd,
            "trace_sd": self.trace_sd,
            "margin": self.margin,
            "relaxation_steps": self.relaxation_steps[:half],
            "scale_error": self.scale_error,
            "scale_relaxation_steps": self.relaxation_steps[half:],
            "informed": self._is_told(),
        }
        if self.optimum_sd is not None:
            columns |= {"optimum_sd": self.optimum_sd, "over_optimum": self.private_sd / self.optimum_sd}
        return pd.DataFrame(columns, index=pd.Index(self.names, name="parameter"))

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON types; infinite numbers are the string "infinity"."""
        names = [*(field.name for field in dataclasses.fields(self)), "over_optimum", "uninformed"]
        data = {name: getattr(self, name) for name in names}
        return {name: to_json(value) for name, value in data.items()}

    def report(self) -> str:
        """Return the plan as text of several lines, without its warnings."""
        return "\n".join([*self._facts(), "", *self._table()])

    def _repr_html_(self) -> str:
        facts = [tuple(line.split(":", 1)) for line in self._facts()[1:]]
        warned = "".join(html_note("Warning:", line, is_good=False) for line in self.warnings)
        pairs = html_pairs(self._facts()[0], [(name, value.strip()) for name, value in facts])
        frame = self.to_frame()[list(_COLUMNS)].sort_values("margin", kind="stable")
        return warned + pairs + html_frame("Parameters, those that the noise hits hardest first", frame)

    def __str__(self) -> str:
        return "\n".join([self.report(), *(f"warning: {line}" for line in self.warnings)])

    def _facts(self) -> list[str]:
        """Return the settings, a line each."""
        half = len(self.names)
        budget = (
            f"epsilon {self.epsilon:g}, delta {self.delta:g}, {self.neighbouring_relation}, {self.protects}"
            if self.noise_multiplier
            else "none: this run would not be private"
        )
        took = "not measured"
        if self.run_seconds is not None:
            source = f"from {self.num_timed_steps} steps on made-up records on this machine"
            took = f"about {duration(self.run_seconds)}, {source}"
        chosen = "as given"
        if self.suggested_for is not None:
            chosen = f"suggested for {self.suggested_for:,} records"
        curvature = "not released"
        if self.curvature_share > 0.0:
            curvature = f"released, for {self.curvature_share:.0%} of the budget"
        return [
            f"Plan for {self.num_records:,} records; none was read, and levels are taken as equally frequent",
            f"privacy budget:    {budget}",
            f"settings:          {chosen}; preconditioner {self.preconditioner_u:g} of the scales, which "
            f"start at u = {number_range(self.initial_u)}",
            f"curvature:         {curvature}",
            f"noise multiplier:  {self.noise_multiplier:.6g} clip norms of {self.clip_norm:.4g}",
            f"noise sd a step:   {self.noise_std[0]:.4g} in locations, {self.noise_std[half]:.4g} in scales",
            f"batch:             {self.sampling_rate * self.num_records:,.0f} records expected, "
            f"{self.clipped_share:.1%} of them clipped; 99 % of gradients are below {self.typical_norm:.3g}",
            f"steps:             {self.num_steps:,}, of which {self.num_window_steps:,} after burn-in",
            f"learning rate:     {number_range(self.learning_rate[:half])} for locations, "
            f"{number_range(self.learning_rate[half:])} for scales; "
            f"largest step times curvature {self.largest_step:.2g}",
            f"relaxation:        {self.relaxation_steps[:half].max():,.0f} steps for the slowest location, "
            f"{self.relaxation_steps[half:].max():,.0f} for the slowest scale",
            f"run time:          {took}",
            f"release file:      {self.file_bytes / 1e6:,.2f} MB",
            f"median sd:         prior {np.median(self.prior_sd):.3g}, non-private posterior "
            f"{np.median(self.non_private_sd):.3g}, private posterior {np.median(self.private_sd):.3g}",
            f"gaussian optimum:  {self._optimum()}",
            f"not informed:      {self._uninformed()}",
        ]

    def _optimum(self) -> str:
        """Return how far the run is from the best at its budget, in words."""
        if self.optimum_sd is None:
            return self.optimum_reason
        ratio = number_range(np.round(self.private_sd / self.optimum_sd, 2))
        return (
            f"median sd {np.median(self.optimum_sd):.3g}, of all sufficient statistics released once; the "
            f"private posterior's is {ratio} times that"
        )

    def _uninformed(self) -> str:
        """Return which parameters the budget cannot inform, in words."""
        if not self.uninformed:
            return f"none: every parameter's sd falls below {_UNINFORMED:g} of its prior's"
        return (
            f"{len(self.uninformed)} of {len(self.names)} parameters keep more than {_UNINFORMED:g} of their "
            f"prior's sd: {shown_names(self.uninformed, most=_MOST_UNINFORMED)}"
        )

    def _table(self) -> list[str]:
        """Return the table of the parameters that the noise hits hardest."""
        frame = self.to_frame()[list(_COLUMNS)]
        worst = frame.sort_values("margin", kind="stable").head(_MOST_ROWS)
        text = worst.to_string(formatters={name: form.format for name, form in _COLUMNS.items()})
        left = len(frame) - len(worst)
        more = [f"... and {left} more with larger margins"] if left else []
        return [*text.splitlines(), *more, *self._footnote()]

    def _footnote(self) -> list[str]:
        """Return what the table's margins mean for levels that are rarer than the plan takes them to be."""
        if not self.drowning_count:
            return []
        return [
            f"a level drowns if fewer than about {self.drowning_count:,.0f} records have it, margin times "
            "fewer than its equal share"
        ]
