"""The automatic choice of burn_in, from the release alone."""

import numpy as np

from nadpvi.containers.release import Release
from nadpvi.diagnostics.limits import stationarity_scores
from nadpvi.diagnostics.released import released_window, window_numbers
from nadpvi.errors import ArgumentError

__all__ = ["choose_burn_in"]

# Heidelberger and Welch (1983), Simulation run length control in the presence of an initial transient,
# Operations Research 31(6): a tenth more is dropped until the rest passes, and at most one half.
_STEP, _MOST = 0.1, 0.5


def choose_burn_in(release: Release) -> float:
    """Return the shortest burn-in, in tenths of the run, whose window passes the stationarity check.

    Heidelberger and Welch's rule with the split means and first iterate of `nadpvi.diagnose` as its test. The
    window begins after early_steps. If no window passes, one half of the run is dropped: the check then shows
    it.

    Parameters
    ----------
    release : Release
        One that keeps steps.

    Raises
    ------
    ArgumentError
        If it keeps sums, whose window is fixed, or too few steps.
    """
    if release.sums is not None:
        raise ArgumentError("burn_in was fixed when the release was made, which holds sums; leave it out.")
    config = release.config
    early = 0.0 if config is None else config.early_steps / config.num_steps
    shares = [share for share in np.arange(0.0, _MOST + 0.5 * _STEP, _STEP).round(3) if share >= early]
    for share in shares:
        window = released_window(release, burn_in=float(share))
        if stationarity_scores(window_numbers(release, window, has_pairs=False)).max() <= 1.0:
            return float(share)
    return max(_MOST, early)
