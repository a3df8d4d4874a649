"""The step of the package, and the gathers and products that no step can do without."""

import dataclasses
from collections.abc import Callable
from importlib.metadata import version

import numpy as np
from engine_cases import CASES, settings_of
from engine_worker import Inputs, poisson_sample

from nadpvi.privacy.noise import DiscreteGaussianNoise, NoNoise, SimulatedGaussianNoise
from nadpvi.privacy.randomness import make_streams
from nadpvi.private.batches import Workspace
from nadpvi.private.dpvi import State, step
from nadpvi.private.records import Records

__all__ = ["Bare", "Step", "make_bare", "make_step"]

# More than any benchmark does: a source must be told beforehand how many vectors it gives.
_MANY = 10**7


class Step:
    """Steps of `nadpvi.private.dpvi.step`, as a simulation or as a real release takes them."""

    version = f"nadpvi {version('nadpvi')}"

    def __init__(self, inputs: Inputs, kind: str) -> None:
        self.settings = settings_of(CASES[inputs.case]())
        self.records = Records(x=inputs.x, y=inputs.y)
        self.state = State(0, self.settings.initial_phi)
        self.workspace = Workspace()
        sigma, dimension = inputs.public["noise_multiplier"], inputs.public["D"]
        if kind == "real":
            self.noise = DiscreteGaussianNoise(noise_multiplier=sigma, dimension=dimension, num_steps=_MANY)
            self.streams = make_streams(insecure_seed=None)
        else:
            rng = np.random.default_rng(2)
            self.noise = SimulatedGaussianNoise(rng, noise_multiplier=sigma, dimension=dimension)
            self.streams = make_streams(insecure_seed=1)

    def step(self) -> None:
        """Do one step, from the start."""
        self._step(records=self.records, settings=self.settings, noise=self.noise, streams=self.streams)

    def finish(self) -> None:
        """Wait for the noise that is being drawn: a round pays for as many blocks as it used.

        It would otherwise be drawn while another tool is timed.
        """
        pending = getattr(self.noise, "_pending", None)
        if pending is not None:
            pending.result()

    def _step(self, **given) -> np.ndarray:
        # As in a run, where NumPy's warnings are off.
        with np.errstate(all="ignore"):
            return step(self.state, workspace=self.workspace, **given)[1]

    def gradient(self, normal: np.ndarray, num_rows: int) -> np.ndarray:
        """Return the gradient of the first rows, on the grid of this kind of step."""
        noise = NoNoise(dimension=len(self.state.phi))
        noise.grid_units = self.noise.grid_units
        streams = dataclasses.replace(self.streams, monte_carlo=_Fixed(normal))
        return self._step(
            records=Records(x=self.records.x[:num_rows], y=self.records.y[:num_rows]),
            settings=dataclasses.replace(self.settings, sampling_rate=1.0),
            noise=noise,
            streams=streams,
        )


class _Fixed:
    """A generator that always draws the same."""

    def __init__(self, normal: np.ndarray) -> None:
        self.normal = normal

    def standard_normal(self, size: tuple[int, ...]) -> np.ndarray:
        """Return the draws that were given."""
        # A step draws the first half, and takes the opposites for the second.
        return self.normal[: size[0]].reshape(size).copy()


def make_step(inputs: Inputs, kind: str) -> Step:
    """Return a step of the package: "simulation" or "real"."""
    return Step(inputs, kind)


class Bare:
    """The gathers and matrix products of one step into buffers made beforehand, and nothing else.

    The indices are drawn beforehand; the theta, residuals and weights are any numbers. For a model with a
    linear predictor: x and y of the batch, X theta', R E, w'X and w'(R E). For one without: y, the rows of
    the gradients from two statistics, and their weighted sum.

    Parameters
    ----------
    inputs : Inputs
    kind : str
        "whole": each product over the whole batch; "blocks": over blocks of 512 rows, which stay in cache.
    """

    version = f"numpy {np.__version__}"

    def __init__(self, inputs: Inputs, kind: str) -> None:
        rng, public = np.random.default_rng(3), inputs.public
        num_records, rate = public["N"], public["sampling_rate"]
        # As many as a table has batches, so that the gathers meet all of it.
        self.batches = [
            poisson_sample(rng, num_records=num_records, sampling_rate=rate) for _ in range(round(1 / rate))
        ]
        rows = 512 if kind == "blocks" else max(len(batch) for batch in self.batches)
        self.turn, self.rows = 0, rows
        self.work = self._linear(inputs, rng) if inputs.x.shape[1] else self._family(inputs, rng)

    def _linear(self, inputs: Inputs, rng: np.random.Generator) -> Callable[[np.ndarray], None]:
        rows, num_draws, num_features = self.rows, inputs.public["S"], inputs.x.shape[1]
        x, y = np.empty((rows, num_features)), np.empty(rows)
        predictor, scale = np.empty((rows, num_draws)), np.empty((rows, num_features))
        theta, noise = rng.normal(size=(num_features, num_draws)), rng.normal(size=(num_draws, num_features))
        residual, weights = rng.normal(size=(rows, num_draws)), rng.random(rows)

        def work(index: np.ndarray) -> None:
            size = len(index)
            np.take(inputs.x, index, axis=0, out=x[:size], mode="clip")
            np.take(inputs.y, index, out=y[:size], mode="clip")
            np.matmul(x[:size], theta, out=predictor[:size])
            np.matmul(residual[:size], noise, out=scale[:size])
            weights[:size] @ x[:size]
            weights[:size] @ scale[:size]

        return work

    def _family(self, inputs: Inputs, rng: np.random.Generator) -> Callable[[np.ndarray], None]:
        rows, dimension = self.rows, inputs.public["D"]
        statistics, gradients = np.ones((rows, 2)), np.empty((rows, dimension))
        natural, weights = rng.normal(size=(2, dimension)), rng.random(rows)

        def work(index: np.ndarray) -> None:
            size = len(index)
            statistics[:size, 0] = inputs.y[index]
            np.matmul(statistics[:size], natural, out=gradients[:size])
            weights[:size] @ gradients[:size]

        return work

    def step(self) -> None:
        """Do the gathers and products of one batch."""
        batch = self.batches[self.turn % len(self.batches)]
        self.turn += 1
        for start in range(0, len(batch), self.rows):
            self.work(batch[start : start + self.rows])

    def finish(self) -> None:
        """Do nothing: all is done when `step` returns."""

    def gradient(self, normal: np.ndarray, num_rows: int) -> None:
        """Return None: this is no step."""


def make_bare(inputs: Inputs, kind: str) -> Bare:
    """Return the bare products: "whole" or "blocks"."""
    return Bare(inputs, kind)
