"""One trial: simulated tables, releases under some settings, exact posteriors, and their scores.

Tables are drawn from the prior, so that no private record is seen; the private engine runs on them.
"""

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nadpvi.config import DPVIConfig
from nadpvi.coverage import score_many
from nadpvi.errors import InferenceWarning
from nadpvi.experiments.tasks import Task
from nadpvi.inference.many import exact_theta
from nadpvi.models.registry import model_from_dict
from nadpvi.privacy.budget import PrivacyBudget
from nadpvi.private.replicates import replicate_seed, simulate_releases, simulate_tables
from nadpvi.schema import Schema

__all__ = ["SPREAD", "run_trial"]

Array = NDArray[np.float64]

# The number of records is a guess: a third of the tables have fewer, and a third more, by this factor.
SPREAD = math.sqrt(2.0)
_DRAWS = 200
_REFERENCES = 5


def run_trial(task: Task) -> dict[str, Array]:
    """Return scores in units of each parameter's prior sd: ``crps`` and ``sd``, and ``z``, all (R, K).

    And ``joint``, (R, 5), for the coverage of all parameters together.

    Parameters
    ----------
    task : Task
        Settings are ``model``, ``schema``, ``privacy``, ``config``, ``num_records`` and ``replicates``, R,
        a multiple of 3. Replicate r depends on the task's seed and on r alone: all settings see the same
        tables and random numbers.
    """
    settings = task.settings
    model: Any = model_from_dict(settings["model"])
    schema = Schema.from_dict(settings["schema"])
    privacy = PrivacyBudget(**settings["privacy"])
    config = DPVIConfig.from_dict({**settings["config"], "keep": "sums"})
    _, prior_sd = model.prior_moments(model.design(schema))
    parts = []
    for group, factor in enumerate((1.0 / SPREAD, 1.0, SPREAD)):
        numbers = range(group, int(settings["replicates"]), 3)
        seeds = [replicate_seed(task.seed[0], number) for number in numbers]
        size = max(1, round(settings["num_records"] * factor))
        tables = simulate_tables(model, schema=schema, num_records=size, seeds=seeds)
        traces = simulate_releases(
            model, tables.outcomes, schema=schema, privacy=privacy, config=config, seeds=seeds
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InferenceWarning)
            draws = exact_theta(
                [traces.release(index) for index in range(len(seeds))], draws=_DRAWS, seed=seeds[0]
            )
        parts.append(score_many(draws, np.array(tables.theta), seeds=seeds, num_references=_REFERENCES))
    joined = {name: np.concatenate([part[name] for part in parts]) for name in ("crps", "sd", "z", "joint")}
    return {**joined, "crps": joined["crps"] / prior_sd, "sd": joined["sd"] / prior_sd}
