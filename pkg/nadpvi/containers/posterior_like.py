"""What a reader of posteriors relies on: the protocol by which reports and figures know a `Posterior`."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from nadpvi.description import ModelDescription
from nadpvi.diagnostics.findings import Finding
from nadpvi.privacy.guarantee import Guarantee
from nadpvi.tables import TableLike

__all__ = ["PROMISE", "SPREAD", "PosteriorLike"]

# The setting that states a promise in one sentence, where it is not that of a DP-SGD run.
PROMISE = "promise"
# The setting that says by what theta is spread about its optimum, where it is not the guide.
SPREAD = "spread"


class PosteriorLike(Protocol):
    """A `nadpvi.Posterior` as seen from below it, where its class cannot be imported."""

    @property
    def groups(self) -> Mapping[str, xr.Dataset]:
        """ArviZ's groups."""
        ...

    @property
    def settings(self) -> dict[str, Any]:
        """How it was made."""
        ...

    @property
    def guarantee(self) -> Guarantee | None:
        """That of the release behind it."""
        ...

    @property
    def description(self) -> ModelDescription | None:
        """Model, schema and guide."""
        ...

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the checks found."""
        ...

    @property
    def num_divergences(self) -> int | None:
        """Divergent transitions, or None without chains."""
        ...

    def theta(self) -> NDArray[np.float64]:
        """Return draws of unconstrained theta, shape (chain, draw, K)."""
        ...

    def summary(self, *, probability: float = 0.9) -> pd.DataFrame:
        """Return one row an entry of a parameter."""
        ...

    def predict(self, table: TableLike) -> NDArray[np.float64]:
        """Return the posterior predictive mean, one number a row."""
        ...

    def check_guarantee(self) -> None:
        """Raise `ArgumentError` if epsilon on record is too small."""
        ...
