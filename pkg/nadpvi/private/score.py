"""How well a guide fits the records, told with noise: the score by which runs are compared. Private side."""

import numpy as np
from numpy.typing import NDArray

from nadpvi.description import ModelDescription
from nadpvi.models.base import RecordBatch
from nadpvi.privacy.noise import NoiseSource
from nadpvi.private.batches import blocks, evaluated
from nadpvi.private.dpsgd import exact_sum
from nadpvi.private.records import Records

__all__ = ["SCORE_ROWS", "NUM_DRAWS", "private_score"]

Array = NDArray[np.float64]

NUM_DRAWS = 10
SCORE_ROWS = 1024


def private_score(
    records: Records,
    *,
    description: ModelDescription,
    phi: Array,
    bound: float,
    records_per_unit: int,
    noise: NoiseSource,
    rng: np.random.Generator,
) -> float:
    """Return the noisy sum over all records of their clipped expected log likelihood under q(theta; phi).

    Each record's value is ``E_q log p(y | x, theta)``, over draws that all records share, clamped to
    [-bound, bound] and divided by ``bound * records_per_unit``.

    Guarantees
    ----------
    - Adding or removing one unit, with at most `records_per_unit` records, changes the sum by at most 1 (on
      the noise's grid: by at most `grid_units`, each record's value being truncated toward zero and the sum
      of integers exact), which is the sensitivity that `noise` is made for. A row that stands for several
      records counts so many times.
    - A record whose value is not finite, or on which the model fails, counts zero.

    Parameters
    ----------
    records : Records
        Private.
    description : ModelDescription
        Model and guide.
    phi : ndarray, shape (D,)
        Where the run ended. Public.
    bound : float
        Clip bound of one record's log likelihood, > 0, in nats.
    records_per_unit : int
        m >= 1.
    noise : NoiseSource
        One coordinate, for one draw.
    rng : numpy.random.Generator
        Draws theta; no secret.

    Returns
    -------
    float
        In units of ``bound * records_per_unit`` nats.
    """
    num_noise = description.guide.num_noise(len(description.names))
    theta = description.guide.draw(phi, rng.standard_normal((NUM_DRAWS, num_noise)))[:, None, :]
    units = noise.grid_units or 1
    total: float = 0  # a Python integer on the grid, whatever its size

    def values_of(batch: RecordBatch) -> Array:
        with np.errstate(all="ignore"):
            values: Array = np.asarray(description.model.log_likelihood(theta, batch)).mean(axis=0)
        return values

    for block in blocks(
        records, np.arange(len(records.y)), num_rows=SCORE_ROWS, multiplicities=records.counts
    ):
        for values, part in evaluated(block, values_of):
            known = values[: part.num_records]
            shares = np.where(np.isfinite(known), np.clip(known, -bound, bound), 0.0)
            shares *= units / (bound * records_per_unit)
            # A share of at most units / m, truncated, so that m of them never pass the bound.
            times = part.multiplicities
            counted = np.ones(part.num_records) if times is None else times[: part.num_records]
            if noise.grid_units:
                total += int(exact_sum(counted, np.trunc(shares), largest=units))
            else:
                total += float(counted @ shares)
    drawn = noise.draw()[0]
    # Whole numbers on the grid, added as such: rounding comes after the noise.
    return float((total + (int(drawn) if noise.grid_units else drawn)) / units)
