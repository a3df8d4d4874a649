"""Step sizes for other numbers of steps, sampling rates or preconditioners than they were chosen for."""

import dataclasses
from typing import Any

from nadpvi.checks import check_count
from nadpvi.config import DPVIConfig
from nadpvi.errors import ArgumentError

__all__ = ["with_kept_pace"]


def with_kept_pace(
    config: DPVIConfig,
    *,
    num_steps: int | None = None,
    sampling_rate: float | None = None,
    preconditioner_u: float | None = None,
) -> DPVIConfig:
    """Return other settings with step sizes by which iterates move as they were meant to.

    What counts is step size times sampling rate, in a scale times its preconditioner, over all steps. Fewer
    steps keep their size, since larger ones could be unsteady. Early steps stay the same share of all.

    Parameters
    ----------
    config : DPVIConfig
        Settings with a `learning_rate`, as `nadpvi.suggest_config` gives them.
    num_steps, sampling_rate, preconditioner_u
        As `DPVIConfig` has them; what is omitted stays.

    Raises
    ------
    ArgumentError
        If one of them is out of range, or `config` has the heuristic step size.

    Examples
    --------
    >>> chosen = DPVIConfig(num_steps=300, learning_rate=0.5)
    >>> with_kept_pace(chosen, num_steps=600).learning_rate
    0.25
    """
    if config.learning_rate is None:
        raise ArgumentError(
            "config must have a learning_rate: the heuristic one follows the settings by itself."
        )
    changes: dict[str, Any] = {
        "num_steps": num_steps,
        "early_steps": _early_steps(config, num_steps=num_steps),
        "sampling_rate": sampling_rate,
        "preconditioner_u": preconditioner_u,
    }
    moved = dataclasses.replace(config, **{name: v for name, v in changes.items() if v is not None})
    by_rate = config.sampling_rate / moved.sampling_rate
    by_steps = min(1.0, config.num_steps / moved.num_steps)
    by_weight = config.preconditioner_u / moved.preconditioner_u
    factors = {
        label: factor if label.startswith("mu[") else factor * by_weight
        for label, factor in (config.learning_rate_factors or {}).items()
    }
    return dataclasses.replace(
        moved,
        learning_rate=config.learning_rate * by_rate * by_steps,
        learning_rate_factors=factors or None,
    )


def _early_steps(config: DPVIConfig, *, num_steps: int | None) -> int | None:
    """Return as large a share of the steps as before; None where nothing changes."""
    if num_steps is None or config.early_steps == 0:
        return None
    return max(1, int(config.early_steps * check_count("num_steps", num_steps) / config.num_steps))
