"""What one task does: simulate a block of tables, release, infer by every method, and score."""

import time

import numpy as np
from numpy.typing import NDArray

from nadpvi.coverage import score_many
from nadpvi.errors import NadpviError
from nadpvi.experiments.blocks import Block
from nadpvi.experiments.methods import METHODS, Method
from nadpvi.experiments.optimum import optimum_sd
from nadpvi.experiments.predictions import score_predictions
from nadpvi.experiments.tasks import Task, one_line

__all__ = ["run_block"]

Array = NDArray[np.float64]


def run_block(task: Task) -> dict[str, Array]:
    """Return the scores of every method on a block, under names ``method__score``; one row a replicate.

    A pure function of the task. Where the truth is known they are those of `nadpvi.coverage.score_many`, else
    those of predictions on test rows. ``method__seconds`` is wall time by itself, () each, the making of the
    releases counted with the first method that needs them. A method that fails costs itself alone: it leaves
    ``method__failure``, one line, () each. Should all fail, so does the task.

    Parameters
    ----------
    task : Task
        From `Experiment.tasks`.
    """
    block = Block(task.settings, seed=task.seed[0])
    limit = optimum_sd(block)
    found: dict[str, Array] = {}
    failures: list[NadpviError] = []
    for name in task.settings["methods"]:
        try:
            scores = _run_method(METHODS[name], block, references=task.settings["references"], limit=limit)
        except NadpviError as error:
            failures.append(error)
            scores = {"failure": np.asarray(one_line(error))}
        found |= {f"{name}__{key}": np.asarray(value) for key, value in scores.items()}
    if len(failures) == len(task.settings["methods"]):
        raise failures[-1]
    return found


def _run_method(method: Method, block: Block, *, references: int, limit: Array | None) -> dict[str, Array]:
    """Return the scores of one method on a block, and its seconds."""
    start = time.perf_counter()
    draws = method.draw(block, method.child)
    seconds = time.perf_counter() - start
    if block.tables[0].theta is None:
        scores = score_predictions(draws, block)
    else:
        scores = score_many(
            draws,
            block.theta,
            seeds=block.seeds,
            num_references=references,
            reference_centre=block.mean_locations if method.reads_release else None,
        )
        if limit is not None:
            scores["optimum_sd"] = limit
    return {**scores, "seconds": np.asarray(seconds)}
