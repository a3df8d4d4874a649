"""Hamiltonian Monte Carlo on several chains at once, with one step size and one diagonal metric for all.

A transition takes a random number of leapfrog steps of one length, so that no trajectory resonates. While
warming up, dual averaging moves the step size towards a mean acceptance of 0.9, and the metric becomes the
coordinates' variances within chains (Hoffman and Gelman 2014; Neal 2011). After `freeze` nothing adapts,
and chains are independent given the frozen settings. The density may change between transitions, as in a
Gibbs sampler.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Info", "State", "freeze", "init", "step"]

FloatArray = NDArray[np.float64]
Density = Callable[[FloatArray], tuple[FloatArray, FloatArray]]

_TARGET = 0.9
_PATH = 1.6  # mean length of a trajectory in standard deviations: a quarter of a normal's period
_MAX_STEPS, _FIRST_STEPS = 64, 16  # leapfrog steps a transition, and before the metric is known
_FIRST_STEP, _LATER_STEP = 0.01, 0.1  # before the metric is known, and after each change of it
_APPROACH, _UPDATES = 0.2, (0.35, 0.55, 0.8)
# Dual averaging's constants (Hoffman and Gelman 2014, section 3.2).
_GAMMA, _OFFSET, _DECAY = 0.05, 10.0, 0.75
_DIVERGED = 1000.0
# Shrinkage of estimated variances, as Stan has it: so many transitions of a small variance.
_PRIOR_COUNT, _PRIOR_VARIANCE = 5.0, 1e-3


class _StepSize(NamedTuple):
    """Dual averaging: current and averaged log step, its centre, the running error, and its updates."""

    log_step: float
    log_average: float
    centre: float
    error: float
    updates: int


class _Spread(NamedTuple):
    """Running moments of each chain since the last change: count, means and sums of squares (C, size)."""

    seen: int
    mean: FloatArray
    squares: FloatArray


class State(NamedTuple):
    """Where the chains are, and how they move.

    Attributes
    ----------
    position : ndarray, shape (C, size)
    variances : ndarray, shape (size,)
        The inverse metric.
    approach : int
        Transitions that the metric ignores.
    updates : tuple of int
        Transitions after which the metric changes, counted from the first.
    is_adapting : bool
    """

    position: FloatArray
    variances: FloatArray
    step_size: _StepSize
    spread: _Spread
    approach: int
    updates: tuple[int, ...]
    num_transitions: int
    is_adapting: bool


class Info(NamedTuple):
    """What a transition did, per chain (C,), under ArviZ's names."""

    acceptance_rate: FloatArray
    diverging: NDArray[np.bool_]
    lp: FloatArray
    energy: FloatArray
    step_size: float
    n_steps: int


def init(position: FloatArray, *, variances: FloatArray, warmup: int) -> State:
    """Return chains at the given positions, (C, size), that will warm up for `warmup` transitions.

    The metric changes three times, after `_UPDATES` of them; `variances` is its start. What was seen on the
    way from the start, `_APPROACH`, does not count.
    """
    empty = _Spread(0, np.zeros_like(position), np.zeros_like(position))
    updates = tuple(sorted({math.ceil(share * warmup) for share in _UPDATES}))
    approach = math.ceil(_APPROACH * warmup)
    return State(position, variances, _fresh_step(_FIRST_STEP), empty, approach, updates, 0, warmup > 0)


def _fresh_step(step: float) -> _StepSize:
    """Return dual averaging that starts at a step and first looks at ten times as much."""
    return _StepSize(math.log(step), math.log(step), math.log(10.0 * step), 0.0, 0)


def freeze(state: State) -> State:
    """Return the chains with adaptation ended and the averaged step size in use."""
    averaged = state.step_size.log_average if state.step_size.updates else state.step_size.log_step
    return state._replace(step_size=state.step_size._replace(log_step=averaged), is_adapting=False)


def step(rng: np.random.Generator, state: State, density: Density) -> tuple[State, Info]:
    """Move every chain by one transition that leaves `density` invariant (once frozen).

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
    density : callable
        Takes positions (C, size); returns log densities (C,) and gradients (C, size). Where there is no
        density it gives -inf and any finite gradient.
    """
    size = math.exp(state.step_size.log_step)
    is_approaching = state.is_adapting and state.num_transitions < state.updates[0]
    longest = _FIRST_STEPS if is_approaching else _MAX_STEPS
    num_steps = 1 + int(rng.integers(min(longest, max(1, round(2.0 * _PATH / size)))))
    momentum = rng.standard_normal(state.position.shape) / np.sqrt(state.variances)
    log_density, gradient = density(state.position)
    start = log_density - _kinetic(state, momentum)
    position = state.position
    for _ in range(num_steps):
        momentum = momentum + 0.5 * size * gradient
        position = position + size * state.variances * momentum
        proposed, gradient = density(position)
        momentum = momentum + 0.5 * size * gradient
    with np.errstate(over="ignore", invalid="ignore"):
        change = proposed - _kinetic(state, momentum) - start
        change = np.where(np.isnan(change), -np.inf, change)
        acceptance = np.exp(np.minimum(change, 0.0))
    is_accepted = rng.random(acceptance.shape) < acceptance
    info = Info(
        acceptance_rate=acceptance,
        diverging=change < -_DIVERGED,
        lp=np.where(is_accepted, proposed, log_density),
        energy=-start,
        step_size=size,
        n_steps=num_steps,
    )
    moved = state._replace(position=np.where(is_accepted[:, None], position, state.position))
    return (_adapt(moved, float(acceptance.mean())) if state.is_adapting else moved), info


def _kinetic(state: State, momentum: FloatArray) -> FloatArray:
    """Return the kinetic energy of each chain."""
    energy: FloatArray = 0.5 * (np.square(momentum) * state.variances).sum(axis=1)
    return energy


def _adapt(state: State, acceptance: float) -> State:
    """Return the chains with step size and metric adapted after a transition."""
    old = state.step_size
    count = old.updates + 1
    share = 1.0 / (count + _OFFSET)
    error = (1.0 - share) * old.error + share * (_TARGET - acceptance)
    log_step = old.centre - math.sqrt(count) / _GAMMA * error
    weight = count**-_DECAY
    average = weight * log_step + (1.0 - weight) * old.log_average
    spread = state.spread
    if state.num_transitions >= state.approach:
        away = state.position - spread.mean
        mean = spread.mean + away / (spread.seen + 1)
        spread = _Spread(spread.seen + 1, mean, spread.squares + away * (state.position - mean))
    state = state._replace(
        step_size=_StepSize(log_step, average, old.centre, error, count),
        spread=spread,
        num_transitions=state.num_transitions + 1,
    )
    return _change_metric(state) if state.num_transitions in state.updates else state


def _change_metric(state: State) -> State:
    """Return the chains with the variances seen since the last change as their metric."""
    spread = state.spread
    if spread.seen < 2:
        return state
    total = spread.seen * spread.mean.shape[0]
    within = spread.squares.mean(axis=0) / (spread.seen - 1)
    variances = (total * within + _PRIOR_COUNT * _PRIOR_VARIANCE) / (total + _PRIOR_COUNT)
    empty = _Spread(0, np.zeros_like(spread.mean), np.zeros_like(spread.mean))
    return state._replace(variances=variances, spread=empty, step_size=_fresh_step(_LATER_STEP))
