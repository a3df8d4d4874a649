"""Settings chosen from public information alone: model, schema, budget and a guess of the record count."""

from nadpvi.tuning.api import Tuned, tune

__all__ = ["Tuned", "tune"]
