"""Bring your own trace: a logistic regression trained by Opacus, and honest intervals for its coefficients.

Opacus trains by DP-SGD and publishes a point. Its whole noisy trace is under the same guarantee, and says how
far that point may be from where training without noise would have ended. Here the coefficients themselves are
phi (maximum a posteriori), so the posterior of phi_star holds the privacy noise alone.

Needs the extra ``opacus`` (PyTorch on the CPU will do). Run with ``python examples/opacus_logistic.py``;
``--repetitions 20`` counts how often the 90 % intervals hold the optimum without noise, in seeded runs.
"""

import argparse
import importlib.util
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import nadpvi as na

__all__ = ["Training", "make_records", "optimum", "to_release", "train"]

Array = NDArray[np.float64]

NUM_RECORDS = 20_000  # public here, since weight decay and the expected batch size give it away
SAMPLING_RATE = 0.05
EXPECTED_BATCH_SIZE = 1000
BUDGET = na.PrivacyBudget(epsilon=1.0, delta=1e-5)
TRUTH = np.array([-0.5, 1.0, -1.5, 0.5, 0.0])
LABELS = ("Intercept", "x1", "x2", "x3", "x4")
# Features are in [-1, 1] by public knowledge, and a residual is below 1: no record is ever clipped.
CLIP_NORM = float(np.sqrt(len(TRUTH)))
LEARNING_RATE = 1.5


class Training(NamedTuple):
    """What a training run leaves: iterates (T + 1, D), noisy gradients (T, D), and sigma."""

    phi: Array
    noisy_gradient: Array
    noise_multiplier: float


def make_records(seed: int) -> tuple[Array, Array]:
    """Return features with a column of ones, shape (N, D), and outcomes 0 or 1, shape (N,)."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(NUM_RECORDS), rng.uniform(-1, 1, (NUM_RECORDS, len(TRUTH) - 1))])
    return x, (rng.random(NUM_RECORDS) < 1 / (1 + np.exp(-x @ TRUTH))).astype(np.float64)


def optimum(x: Array, y: Array) -> Array:
    """Return the mode under a standard normal prior, by Newton's method: training without noise ends here."""
    theta = np.zeros(x.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-x @ theta))
        hessian = (x * (p * (1 - p))[:, None]).T @ x + np.eye(len(theta))
        theta += np.linalg.solve(hessian, x.T @ (y - p) - theta)
    return theta


def train(x: Array, y: Array, *, num_steps: int, seed: int | None = None) -> Training:
    """Return the trace of Opacus's optimizer; with a seed, that of a simulation that protects nobody."""
    with warnings.catch_warnings():
        # Both libraries warn of their own next versions.
        warnings.simplefilter("ignore")
        import torch
        from opacus.grad_sample import GradSampleModule
        from opacus.optimizers import DPOptimizer

        generator = torch.Generator()
        if seed is None:
            generator.seed()
        else:
            generator.manual_seed(seed)
        noise_multiplier = na.noise_multiplier(
            epsilon=BUDGET.epsilon, delta=BUDGET.delta, num_steps=num_steps, sampling_rate=SAMPLING_RATE
        )
        linear = torch.nn.Linear(x.shape[1], 1, bias=False, dtype=torch.float64)
        torch.nn.init.zeros_(linear.weight)
        model = GradSampleModule(linear)
        # The prior is public: weight decay 1 / N is that of a standard normal, on the mean loss.
        inner = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, weight_decay=1 / NUM_RECORDS)
        optimizer = DPOptimizer(
            inner,
            noise_multiplier=noise_multiplier,
            max_grad_norm=CLIP_NORM,
            expected_batch_size=EXPECTED_BATCH_SIZE,
            loss_reduction="mean",
            generator=generator,
        )
        phi, noisy_gradient = record(inner, weight=linear.weight)
        loss, features, outcomes = torch.nn.BCEWithLogitsLoss(), torch.tensor(x), torch.tensor(y)
        for _ in range(num_steps):
            rows = torch.rand(len(outcomes), generator=generator) < SAMPLING_RATE
            optimizer.zero_grad()
            loss(model(features[rows])[:, 0], outcomes[rows]).backward()
            optimizer.step()
        phi.append(linear.weight.detach().numpy().ravel().copy())
    return Training(
        phi=np.array(phi), noisy_gradient=np.array(noisy_gradient), noise_multiplier=noise_multiplier
    )


def record(inner: Any, *, weight: Any) -> tuple[list[Array], list[Array]]:
    """Return two lists that fill as training goes on: iterates, and the noisy gradients computed there.

    Opacus has clipped, summed, noised and divided when it calls the optimizer inside, and the iterate is
    still the one at which the gradient was computed. Weight decay comes only after that: it is added here.
    """
    phi: list[Array] = []
    noisy_gradient: list[Array] = []

    def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        here = weight.detach().numpy().ravel().copy()
        phi.append(here)
        noisy_gradient.append(weight.grad.numpy().ravel() + here / NUM_RECORDS)

    inner.register_step_pre_hook(before_step)
    return phi, noisy_gradient


def to_release(trained: Training, *, privacy: na.PrivacyBudget | None) -> na.Release:
    """Return the trace as a release: `loss` says what Opacus divided by, and `privacy` is accounted anew."""
    return na.Release.from_arrays(
        phi=trained.phi,
        noisy_gradient=trained.noisy_gradient,
        noise_multiplier=trained.noise_multiplier,
        clip_norm=CLIP_NORM,
        sampling_rate=SAMPLING_RATE,
        learning_rate=LEARNING_RATE,
        loss="expected_batch",
        expected_batch_size=EXPECTED_BATCH_SIZE,
        phi_labels=LABELS,
        privacy=privacy,
    )


def main() -> None:
    """Train, infer, compare with the optimum without noise; then count over repetitions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--repetitions", type=int, default=1)
    arguments = parser.parse_args()
    if any(importlib.util.find_spec(name) is None for name in ("torch", "opacus")):
        parser.exit(
            1, "this example trains with Opacus, which is not installed: pip install 'nadpvi[opacus]'\n"
        )

    x, y = make_records(seed=0)
    truth = optimum(x, y)
    if arguments.repetitions > 1:
        count(x, y, num_steps=arguments.steps, num_runs=arguments.repetitions)
        return
    release = to_release(train(x, y, num_steps=arguments.steps), privacy=BUDGET)
    assert release.guarantee is not None
    print(release.guarantee.sentence())
    table = na.infer(release, method="exact").summary()[["mean", "sd", "5%", "95%"]]
    print(table.assign(last_iterate=release.final_phi, without_noise=truth).round(3))


def count(x: Array, y: Array, *, num_steps: int, num_runs: int) -> None:
    """Print how often intervals hold the optimum without noise, and how far off the means are."""
    truth = optimum(x, y)
    held, z, z_last = [], [], []
    for seed in range(num_runs):
        release = to_release(train(x, y, num_steps=num_steps, seed=seed), privacy=None)
        table = na.infer(release, method="exact", seed=seed).summary()
        mean, sd = table["mean"].to_numpy(), table["sd"].to_numpy()
        held.append((table["5%"].to_numpy() < truth) & (truth < table["95%"].to_numpy()))
        z.append((mean - truth) / sd)
        z_last.append((release.final_phi - truth) / sd)
    off, last_off = np.sqrt(np.mean(np.square(z))), np.sqrt(np.mean(np.square(z_last)))
    print(
        f"{num_runs} seeded runs of {num_steps} steps: 90 % intervals hold the optimum without noise in "
        f"{100 * np.mean(held):.0f} % of {np.size(held)} cases. Root mean square distance from it, in "
        f"posterior sds: {off:.2f} (posterior mean), {last_off:.2f} (last iterate)."
    )


if __name__ == "__main__":
    main()
