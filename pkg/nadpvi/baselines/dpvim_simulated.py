"""Many simulated DPVIm runs of a conjugate model as one array program. Private side, never private."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nadpvi.baselines.dpvim_run import aligned_mechanism, as_dpvim
from nadpvi.baselines.dpvim_trace import DPVImRelease
from nadpvi.config import DPVIConfig
from nadpvi.models import Model
from nadpvi.privacy.budget import NonPrivate, PrivacyBudget
from nadpvi.private.replicates.aligned import aligned_group_step
from nadpvi.private.replicates.api import ReplicateTraces, check_simulated, simulate_mechanism
from nadpvi.schema import Schema

__all__ = ["DPVImReplicates", "simulate_dpvim_releases"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class DPVImReplicates:
    """R simulated DPVIm releases. Make them with `simulate_dpvim_releases`.

    Attributes
    ----------
    phi : ndarray, shape (R, T, D)
        Iterates.
    is_finite : ndarray of bool, shape (R,)
        False where a run diverged; its numbers are NaN.
    """

    _traces: ReplicateTraces

    @property
    def phi(self) -> Array:
        """Iterates before each step, shape (R, T, D)."""
        return self._traces.phi

    @property
    def is_finite(self) -> NDArray[np.bool_]:
        """Which runs did not diverge, shape (R,)."""
        return self._traces.is_finite

    def __len__(self) -> int:
        return len(self._traces)

    def __iter__(self) -> Iterator[DPVImRelease]:
        return (self.release(index) for index in range(len(self)))

    def release(self, index: int) -> DPVImRelease:
        """Return one replicate, stamped not private.

        Raises
        ------
        DivergenceError
            If that run diverged.
        """
        return as_dpvim(self._traces.release(index))


def simulate_dpvim_releases(
    model: Model,
    outcomes: ArrayLike | Sequence[Array],
    *,
    schema: Schema,
    privacy: PrivacyBudget | NonPrivate,
    seeds: Sequence[int] | NDArray[np.uint64],
    config: DPVIConfig | None = None,
    is_counted: bool | None = None,
) -> DPVImReplicates:
    """Return R simulated DPVIm releases, one for each table of outcomes.

    Replicate r is the run that `dpvim_release` makes of table r with ``insecure_seed=seeds[r]``, but for the
    order in which its subsamples are drawn. Nothing here is private: all randomness comes from the seeds.

    Parameters
    ----------
    model, outcomes, schema, privacy, seeds, is_counted
        As in `nadpvi.simulate_releases`: an exponential family without predictors, (R, N) encoded outcomes.
    config : DPVIConfig, optional
        As in `dpvim_release`.

    Raises
    ------
    ArgumentError, SchemaError
        As in those two.

    Examples
    --------
    >>> from nadpvi.models import BernoulliBeta
    >>> schema = Schema.from_dict({"columns": {"heads": {"kind": "binary", "levels": ["no", "yes"]}}})
    >>> made = simulate_dpvim_releases(
    ...     BernoulliBeta(outcome="heads"), np.ones((3, 20)), schema=schema, privacy=NonPrivate(),
    ...     seeds=[1, 2, 3],
    ...     config=DPVIConfig(num_steps=50, learning_rate=0.01, monte_carlo_samples=1))
    >>> made.phi.shape
    (3, 50, 2)
    """
    mechanism = aligned_mechanism(model, schema=schema, privacy=privacy, config=config)
    check_simulated(model, schema=schema, config=mechanism.config)
    traces = simulate_mechanism(
        mechanism, outcomes, seeds=seeds, is_counted=is_counted, take_step=aligned_group_step
    )
    return DPVImReplicates(traces)
