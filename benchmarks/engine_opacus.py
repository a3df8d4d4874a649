"""The same step with Opacus: a module whose loss is the negative expected log likelihood, and its optimizer.

Equal to the package's step: the draws shared by the batch, per-record gradients, the preconditioned norm
that is clipped (the scales are the module's parameter times beta, so that PyTorch's gradient is beta times
that in u), the noise, and prior and entropy added after it. Not equal: float32, PyTorch's default; noise from
PyTorch's ordinary generator (Opacus' default) where a real step's is exact and from a cryptographic one.
Batches are Poisson samples by geometric gaps and a plain index, which is faster than Opacus' own sampler.

"hooks" takes per-record gradients from Opacus' `GradSampleModule`; "vmap" computes them with ``torch.func``
and hands them to the optimizer, as Opacus' "no_op" mode is meant for; it saves the second pass.
"""

import warnings

import numpy as np
import torch
from engine_models import make_densities
from engine_worker import Inputs, poisson_sample

# Opacus and PyTorch warn of what is to come, on import and at each hook.
warnings.simplefilter("ignore")

import opacus  # noqa: E402
from opacus.grad_sample import GradSampleModule  # noqa: E402
from opacus.optimizers import DPOptimizer  # noqa: E402
from torch import nn  # noqa: E402
from torch.func import functional_call, grad, vmap  # noqa: E402

__all__ = ["Draws", "ExpectedLoss", "OpacusStep", "make_step"]


class Draws:
    """The step's shared draws. Opacus copies a module once, for good: the copy must see each step's draws."""

    def __init__(self, normal: torch.Tensor) -> None:
        self.normal = normal

    def __deepcopy__(self, memo: dict) -> "Draws":
        return self


class ExpectedLoss(nn.Module):
    """One record's negative expected log likelihood, of x and y side by side: (B, F + 1) -> (B, 1)."""

    def __init__(self, public: dict) -> None:
        super().__init__()
        phi, half = torch.tensor(public["phi"]), public["K"]
        self.beta = public["preconditioner"][-1]
        self.mu = nn.Parameter(phi[:half].clone())
        self.v = nn.Parameter(phi[half:] / self.beta)
        self.log_likelihood, self.log_prior = make_densities(public["model"], torch)
        self.draws = Draws(torch.zeros(public["S"], half))

    def theta(self) -> torch.Tensor:
        """Return the draws, shape (S, K)."""
        return self.mu + nn.functional.softplus(self.beta * self.v) * self.draws.normal

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return each row's loss."""
        theta = self.theta()
        values = vmap(lambda row: -self.log_likelihood(theta, row[:-1], row[-1]).mean())(rows)
        return values[:, None]

    def public_loss(self) -> torch.Tensor:
        """Return minus the expected log prior and the entropy."""
        entropy = nn.functional.softplus(self.beta * self.v).log().sum()
        return -self.log_prior(self.theta()).mean() - entropy


class OpacusStep:
    """The step, with the records as one tensor of features and outcome."""

    version = f"opacus {opacus.__version__}, torch {torch.__version__}"

    def __init__(self, inputs: Inputs, kind: str) -> None:
        torch.manual_seed(0)
        self.public = inputs.public
        self.rows = torch.tensor(np.column_stack([inputs.x, inputs.y]), dtype=torch.float32)
        self.rng = np.random.default_rng(1)
        self.loss = ExpectedLoss(inputs.public)
        self.params = dict(self.loss.named_parameters())
        if kind == "hooks":
            self.module = GradSampleModule(self.loss, loss_reduction="sum")
            self.per_record = self._by_hooks
        else:
            self.gradients = vmap(grad(self._loss_of), in_dims=(None, 0))
            self.per_record = self._by_vmap
        base = inputs.public["learning_rate"][0]
        groups = [
            {"params": [self.loss.mu], "lr": base},
            {"params": [self.loss.v], "lr": base / self.loss.beta},
        ]
        self.optimizer = DPOptimizer(
            torch.optim.SGD(groups),
            noise_multiplier=inputs.public["noise_multiplier"],
            max_grad_norm=inputs.public["clip_norm"],
            expected_batch_size=None,
            loss_reduction="sum",
        )

    def _loss_of(self, params: dict, row: torch.Tensor) -> torch.Tensor:
        return functional_call(self.loss, params, (row[None],)).sum()

    def _by_vmap(self, rows: torch.Tensor) -> None:
        found = self.gradients({name: value.detach() for name, value in self.params.items()}, rows)
        for name, value in self.params.items():
            value.grad_sample = found[name]

    def _by_hooks(self, rows: torch.Tensor) -> None:
        self.module(rows).sum().backward()

    def _noisy(self, rows: torch.Tensor, normal: torch.Tensor, *, rate: float) -> None:
        """Put the noisy gradient into the parameters' `grad`."""
        self.loss.draws.normal = normal
        self.optimizer.zero_grad()
        self.per_record(rows)
        self.optimizer.pre_step()
        values = list(self.params.values())
        for value, gradient in zip(values, torch.autograd.grad(self.loss.public_loss(), values), strict=True):
            value.grad.add_(gradient, alpha=rate)

    def step(self) -> None:
        """Do one step."""
        rate, normal = self.public["sampling_rate"], torch.randn(self.public["S"], self.public["K"])
        index = poisson_sample(self.rng, num_records=self.public["N"], sampling_rate=rate)
        self._noisy(self.rows[torch.from_numpy(index)], normal, rate=rate)
        self.optimizer.original_optimizer.step()

    def finish(self) -> None:
        """Do nothing: a step has ended when it returns."""

    def gradient(self, normal: np.ndarray, num_rows: int) -> np.ndarray:
        """Return the gradient of the first rows."""
        sigma, self.optimizer.noise_multiplier = self.optimizer.noise_multiplier, 0.0
        self._noisy(self.rows[:num_rows], torch.tensor(normal, dtype=torch.float32), rate=1.0)
        self.optimizer.noise_multiplier = sigma
        mu, v = self.loss.mu.grad.numpy(), self.loss.v.grad.numpy()
        return np.concatenate([mu, v / self.loss.beta])


def make_step(inputs: Inputs, kind: str) -> OpacusStep:
    """Return the step with gradients by "hooks" or "vmap"."""
    return OpacusStep(inputs, kind)
