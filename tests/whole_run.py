"""A run of the engine from start to end, for tests that look at its trace."""

from nadpvi.private.dpvi import run
from nadpvi.private.keeping import Keeper


def whole_trace(records, settings, *, noise, streams):
    """Return the trace of all steps."""
    keeper = Keeper(settings)
    for _ in run(records, settings, noise=noise, streams=streams, keeper=keeper):
        pass
    return keeper.trace()
