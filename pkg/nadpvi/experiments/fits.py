"""What the post-processing model reads in a trace: gradients against iterates, and the line through them."""

import contextlib
import warnings
from collections.abc import Container
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nadpvi.containers.release import Release
from nadpvi.errors import InferenceWarning, NadpviError
from nadpvi.experiments.blocks import Block
from nadpvi.experiments.configuration import Experiment
from nadpvi.gradient_model.sums import DEFAULT_BURN_IN, window_start
from nadpvi.inference.api import infer

__all__ = ["gradient_fits"]

Array = NDArray[np.float64]

_POINTS = 120  # of thousands of steps, evenly spread
_DRAWS = 400


def gradient_fits(experiment: Experiment, *, done: Container[str]) -> list[dict[str, Any]]:
    """Return the fit of the first table's release, for each settings and epsilon, as JSON types.

    The counterpart of the paper's figure of noisy gradients against iterates. Three coordinates are kept: the
    first and the last of the guide's locations, and the first scale. For each ``label`` there are the points
    ``phi`` and ``noisy_gradient`` of 120 steps of the window, the fitted line noisy_gradient = slope (phi -
    phi_star) with the posterior means of phi_star and of slope = kappa * curvature, and the noise's sd,
    ``noise_std``.

    Parameters
    ----------
    experiment : Experiment
    done : container of str
        Names of the tasks that succeeded; settings whose first task did not are left out, and so are those
        whose release cannot be fitted.
    """
    tasks = {task.name: task for task in experiment.tasks()}
    found: dict[str, dict[str, Any]] = {}
    for number, arm in enumerate(experiment.arms):
        task = tasks[f"{number:02d}-{0:06d}"]
        if arm.label in found or task.name not in done:
            continue
        block = Block({**task.settings, "count": 1}, seed=task.seed[0])
        # A figure that cannot be drawn must not cost the numbers.
        with contextlib.suppress(NadpviError):
            found[arm.label] = {"settings": arm.label, "coordinates": _coordinates(block)}
    return list(found.values())


def _coordinates(block: Block) -> list[dict[str, Any]]:
    """Return the fitted coordinates of a block's only release."""
    (release,) = block.releases_of(block.config(keep="trace", burn_in=DEFAULT_BURN_IN, thin=1))
    inference = block.inference_of([release])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InferenceWarning)
        posterior = infer(
            release, method="exact", draws=_DRAWS, chains=1, seed=block.draw_seed(0, child=5), **inference
        )
    drawn = posterior.groups["posterior"]
    curvature, phi_star = (drawn[name].to_numpy()[0].mean(axis=0) for name in ("curvature", "phi_star"))
    first = window_start(release.num_steps, burn_in=inference.get("burn_in", DEFAULT_BURN_IN))
    steps = np.linspace(first, release.num_steps - 1, min(_POINTS, release.num_steps - first)).astype(int)
    return [
        {
            "label": release.phi_labels[at],
            "phi": _rounded(release.phi[steps, at]),
            "noisy_gradient": _rounded(release.noisy_gradient[steps, at]),
            "phi_star": _rounded(phi_star[at]),
            "slope": _rounded(release.sampling_rate * curvature[at]),
            "noise_std": _rounded(release.noise_std[at]),
        }
        for at in _chosen(release)
    ]


def _chosen(release: Release) -> list[int]:
    """Return the places of the first and the last location, and of the first scale."""
    assert release.description is not None  # a run of ours has one
    size = len(release.description.names)
    return sorted({0, size - 1, size})


def _rounded(values: Any) -> Any:
    """Return numbers with five significant digits, as JSON types."""
    return [float(f"{value:.5g}") for value in values] if np.ndim(values) else float(f"{float(values):.5g}")
