"""Inferences beside each other, in threads and in processes, give what they give one after another."""

import multiprocessing
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import nadpvi as na
from nadpvi.errors import InferenceWarning

RELEASE = Path(__file__).parent / "data" / "cmdstan" / "release.nc"
SETTINGS = {
    "exact": {"draws": 50, "chains": 2},
    "laplace": {"draws": 50, "chains": 2},
    "nuts": {"draws": 50, "chains": 2, "warmup": 150, "engine": "stanli"},
}


def infer_one(job):
    """Draws of everything from one inference; a function of this module, so that processes can find it."""
    method, seed = job
    release = na.Release.load(RELEASE)
    posterior = na.infer(release, method=method, seed=seed, **SETTINGS[method])
    return {name: values.to_numpy() for name, values in posterior.groups["posterior"].items()}


def start_quietly():
    warnings.simplefilter("ignore", InferenceWarning)


@pytest.mark.parametrize("method", list(SETTINGS))
def test_eight_inferences_in_four_threads_and_four_processes(method):
    jobs = [(method, seed) for seed in range(8)]
    with warnings.catch_warnings():
        start_quietly()
        alone = [infer_one(job) for job in jobs]
        with ThreadPoolExecutor(4) as pool:
            threads = list(pool.map(infer_one, jobs))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(4, mp_context=context, initializer=start_quietly) as pool:
        processes = list(pool.map(infer_one, jobs))
    for first, *others in zip(alone, threads, processes, strict=True):
        assert set(first) == {"phi_star", "curvature", "tau", "coefficients"}
        for other in others:
            for name, values in first.items():
                np.testing.assert_array_equal(values, other[name])
    assert len({run["phi_star"].tobytes() for run in alone}) == 8
