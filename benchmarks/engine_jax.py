"""The same step in plain JAX: vmap over records of the gradient, clip, sum, noise, all in one jit.

Batches are Poisson samples by geometric gaps, drawn by NumPy outside, padded to one size that a batch exceeds
once in 30,000 steps (it is then compiled anew) and gathered inside.
"""

import jax
import jax.numpy as jnp
import numpy as np
from engine_models import make_densities
from engine_worker import Inputs, poisson_sample

__all__ = ["JaxStep", "make_step"]


class JaxStep:
    """The step, with the records kept as JAX arrays."""

    version = f"jax {jax.__version__}"

    def __init__(self, inputs: Inputs, kind: str) -> None:
        jax.config.update("jax_enable_x64", kind == "float64")
        self.public = public = inputs.public
        expected = public["N"] * public["sampling_rate"]
        self.size = int(expected + 4.0 * np.sqrt(expected))
        self.x, self.y = jnp.asarray(inputs.x, kind), jnp.asarray(inputs.y, kind)
        self.phi = jnp.asarray(public["phi"], kind)
        self.key = jax.random.key(0)
        self.rng = np.random.default_rng(1)
        self.noisy, self.advance = _compiled(public, kind)

    def step(self) -> None:
        """Sample and send off one step."""
        index = poisson_sample(
            self.rng, num_records=self.public["N"], sampling_rate=self.public["sampling_rate"]
        )
        padded = np.zeros(max(self.size, len(index)), np.int32)
        padded[: len(index)] = index
        self.phi, self.key = self.advance(self.phi, self.key, self.x, self.y, padded, len(index))

    def finish(self) -> None:
        """Wait for the last step."""
        self.phi.block_until_ready()

    def gradient(self, normal: np.ndarray, num_rows: int) -> np.ndarray:
        """Return the gradient of the first rows."""
        index = np.arange(num_rows, dtype=np.int32)
        zero = jnp.zeros_like(self.phi)
        draws = jnp.asarray(normal, self.phi.dtype)
        found = jax.jit(self.noisy)(self.phi, draws, zero, self.x, self.y, index, num_rows, 1.0)
        return np.asarray(found, np.float64)


def _compiled(public: dict, kind: str):
    """Return the noisy gradient and the jitted step."""
    log_likelihood, log_prior = make_densities(public["model"], jnp)
    half, clip_norm = public["K"], public["clip_norm"]
    beta = jnp.asarray(public["preconditioner"], kind)
    learning_rate = jnp.asarray(public["learning_rate"], kind)
    noise_std = public["noise_multiplier"] * clip_norm

    def loss(phi, normal, x, y):
        theta = phi[:half] + jax.nn.softplus(phi[half:]) * normal
        return -log_likelihood(theta, x, y).mean()

    def public_loss(phi, normal):
        sd = jax.nn.softplus(phi[half:])
        return -log_prior(phi[:half] + sd * normal).mean() - jnp.log(sd).sum()

    def noisy(phi, normal, noise, x, y, index, count, rate):
        rows = jax.vmap(jax.grad(loss), (None, None, 0, 0))(phi, normal, x[index], y[index]) * beta
        weights = clip_norm / jnp.maximum(jnp.sqrt((rows**2).sum(1)), clip_norm)
        weights = jnp.where(jnp.arange(len(index)) < count, weights, 0.0)
        return (weights @ rows + noise) / beta + rate * jax.grad(public_loss)(phi, normal)

    @jax.jit
    def advance(phi, key, x, y, index, count):
        key, first, second = jax.random.split(key, 3)
        normal = jax.random.normal(first, (public["S"], half), phi.dtype)
        noise = noise_std * jax.random.normal(second, phi.shape, phi.dtype)
        gradient = noisy(phi, normal, noise, x, y, index, count, public["sampling_rate"])
        return phi - learning_rate * gradient, key

    return noisy, advance


def make_step(inputs: Inputs, kind: str) -> JaxStep:
    """Return the step in "float32" or "float64"."""
    return JaxStep(inputs, kind)
