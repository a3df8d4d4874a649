"""A plan: what a run is expected to give, and how it reads."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nadpvi.markup import html_frame, html_note, html_pairs

__all__ = ["Plan", "shown_names"]

Array = NDArray[np.float64]

_MOST_ROWS = 20
_MOST_NAMES = 5
_COLUMNS = {
    "prior_sd": "{:.3g}",
    "non_private_sd": "{:.3g}",
    "noise_sd": "{:.3g}",
    "private_sd": "{:.3g}",
    "noise_over_prior": "{:.2f}",
    "noise_over_non_private": "{:.2f}",
    "margin": "{:.3g}",
    "relaxation_steps": "{:.0f}",
}


def shown_names(names: list[str]) -> str:
    """Return names as a line: five of them, and how many more there are.

    Examples
    --------
    >>> shown_names(["age", "job[a]", "job[b]", "job[c]", "job[d]", "job[e]", "job[f]"])
    'age, job[a], job[b], job[c], job[d] and 2 more'
    """
    rest = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + rest


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
    initial_u: float
    curvature_share: float
    suggested_for: int | None
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
    margin: Array
    drowning_count: float | None
    scale_error: Array
    largest_step: float
    clipped_share: float
    typical_norm: float
    file_bytes: int
    run_seconds: float | None
    num_timed_steps: int
    warnings: tuple[str, ...]

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                array = np.array(value, dtype=np.float64)
                array.setflags(write=False)
                object.__setattr__(self, field.name, array)

    def to_frame(self) -> pd.DataFrame:
        """Return one row a parameter: its standard deviations, their ratios, and its speed."""
        half = len(self.names)
        columns = {
            "prior_sd": self.prior_sd,
            "non_private_sd": self.non_private_sd,
            "noise_sd": self.noise_sd,
            "private_sd": self.private_sd,
            "noise_over_prior": self.noise_sd / self.prior_sd,
            "noise_over_non_private": self.noise_sd / self.non_private_sd,
            "trace_sd": self.trace_sd,
            "margin": self.margin,
            "relaxation_steps": self.relaxation_steps[:half],
            "scale_error": self.scale_error,
            "scale_relaxation_steps": self.relaxation_steps[half:],
        }
        return pd.DataFrame(columns, index=pd.Index(self.names, name="parameter"))

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON types; infinite numbers are the string "infinity"."""
        data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: _to_json(value) for name, value in data.items()}

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
            took = f"about {_duration(self.run_seconds)}, {source}"
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
            f"start at u = {self.initial_u:g}",
            f"curvature:         {curvature}",
            f"noise multiplier:  {self.noise_multiplier:.6g} clip norms of {self.clip_norm:.4g}",
            f"noise sd a step:   {self.noise_std[0]:.4g} in locations, {self.noise_std[half]:.4g} in scales",
            f"batch:             {self.sampling_rate * self.num_records:,.0f} records expected, "
            f"{self.clipped_share:.1%} of them clipped; 99 % of gradients are below {self.typical_norm:.3g}",
            f"steps:             {self.num_steps:,}, of which {self.num_window_steps:,} after burn-in",
            f"learning rate:     {_range(self.learning_rate[:half])} for locations, "
            f"{_range(self.learning_rate[half:])} for scales; "
            f"largest step times curvature {self.largest_step:.2g}",
            f"relaxation:        {self.relaxation_steps[:half].max():,.0f} steps for the slowest location, "
            f"{self.relaxation_steps[half:].max():,.0f} for the slowest scale",
            f"run time:          {took}",
            f"release file:      {self.file_bytes / 1e6:,.2f} MB",
            f"median sd:         prior {np.median(self.prior_sd):.3g}, non-private posterior "
            f"{np.median(self.non_private_sd):.3g}, private posterior {np.median(self.private_sd):.3g}",
        ]

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


def _range(values: Array) -> str:
    """Return numbers as their least and largest, or as one where all are alike."""
    low, high = float(values.min()), float(values.max())
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def _duration(seconds: float) -> str:
    """Return a duration in the unit that suits it."""
    if seconds < 90:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _to_json(value: Any) -> Any:
    """Return arrays and tuples as lists, and infinities as a text."""
    if isinstance(value, np.ndarray | tuple | list):
        return [_to_json(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return "infinity" if value == float("inf") else value
