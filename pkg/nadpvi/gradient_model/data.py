"""Containers of the post-processing model: the sums of a trace, and the model's data and priors.

The model is a regression of the noisy gradients on the iterates, so the window of the trace enters only
through counts, means and centred second moments. One density evaluation then costs O(D), not O(T * D).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nadpvi.errors import ArgumentError

__all__ = ["MIN_WINDOW", "SUM_NAMES", "GradientModel", "TraceSums", "check_window", "join_models"]

FloatArray = NDArray[np.float64]

MIN_WINDOW = 3  # a slope, a mean and one residual: fewer steps leave nothing to judge the fit by
# The vectors of `TraceSums`.
SUM_NAMES = ("phi_bar", "g_bar", "s_pp", "s_gp", "s_gg")
_VECTORS = ("noise_std", "phi_star_prior_mean", "phi_star_prior_sd", "v_prior_mean", "v_prior_sd")
_POSITIVE = ("noise_std", "phi_star_prior_sd", "v_prior_sd", "tau_prior_scale")


def check_window(num_steps: int) -> None:
    """Raise `ArgumentError` unless a window holds enough steps to be judged by."""
    if num_steps < MIN_WINDOW:
        raise ArgumentError(
            f"the window must hold at least {MIN_WINDOW} steps (got {num_steps}): "
            "lower burn_in or run more steps."
        )


def _read_only(values: ArrayLike) -> FloatArray:
    """Return a float64 copy that cannot be written to."""
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TraceSums:
    """The sufficient statistics of a window of n steps, per variational parameter.

    Attributes
    ----------
    num_steps : int
        n >= 3, the number of steps in the window.
    phi_bar : ndarray, shape (D,)
        Mean iterate, in units of phi.
    g_bar : ndarray, shape (D,)
        Mean noisy gradient, in units of the summed (not averaged) gradient.
    s_pp : ndarray, shape (D,)
        Sum of (phi - phi_bar)^2 >= 0.
    s_gp : ndarray, shape (D,)
        Sum of (g - g_bar) * (phi - phi_bar), any sign.
    s_gg : ndarray, shape (D,)
        Sum of (g - g_bar)^2 >= 0.

    Raises
    ------
    ArgumentError
        If the window is shorter than 3 steps, shapes differ, or a sum is not finite or negative.
    """

    num_steps: int
    phi_bar: FloatArray
    g_bar: FloatArray
    s_pp: FloatArray
    s_gp: FloatArray
    s_gg: FloatArray

    def __post_init__(self) -> None:
        check_window(self.num_steps)
        for name in SUM_NAMES:
            array = _read_only(getattr(self, name))
            object.__setattr__(self, name, array)
            if array.ndim != 1 or array.shape != self.phi_bar.shape or array.size == 0:
                raise ArgumentError(f"{name} must have shape (D,) like phi_bar (got {array.shape}).")
            if not np.isfinite(array).all():
                raise ArgumentError(f"{name} is not finite: the trace's values overflow; the run diverged.")
            if name in ("s_pp", "s_gg") and (array < 0).any():
                raise ArgumentError(f"{name} is a sum of squares and must not be negative.")

    @property
    def num_parameters(self) -> int:
        """D, the number of variational parameters."""
        return int(self.phi_bar.size)

    @property
    def slope(self) -> FloatArray:
        """Least-squares slope s_gp / s_pp of gradient on iterate; 0 where the iterate never moved."""
        return np.divide(self.s_gp, self.s_pp, out=np.zeros_like(self.s_gp), where=self.s_pp > 0)

    @property
    def residual(self) -> FloatArray:
        """Sum of squares about the least-squares line, s_gg - s_gp^2 / s_pp, never below 0."""
        return np.maximum(self.s_gg - self.slope * self.s_gp, 0.0)

    @property
    def residual_sd(self) -> FloatArray:
        """Sd of a gradient about the least-squares line, sqrt(residual / (n - 2))."""
        return np.sqrt(self.residual / (self.num_steps - 2))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradientModel:
    """Data and priors of the post-processing model; everything in it is public.

    Attributes
    ----------
    sums : TraceSums
        The window of the trace.
    sampling_rate : float
        kappa in (0, 1].
    noise_std : ndarray, shape (D,)
        sigma * C / beta > 0: sd of the DP noise in a noisy gradient, in units of the summed gradient.
    phi_star_prior_mean, phi_star_prior_sd : ndarray, shape (D,)
        phi_star ~ normal(mean, sd), sd > 0, in units of phi.
    v_prior_mean, v_prior_sd : ndarray, shape (D,)
        v ~ normal(mean, sd), sd > 0; a normal on v itself, without Jacobian.
    tau_prior_scale : ndarray, shape (D,), or None
        tau ~ half-normal(scale), scale > 0, in units of the summed gradient; None fixes tau at 0.
    phi_labels : tuple of str
        Name of each coordinate of phi; unique.
    """

    sums: TraceSums
    sampling_rate: float
    noise_std: FloatArray
    phi_star_prior_mean: FloatArray
    phi_star_prior_sd: FloatArray
    v_prior_mean: FloatArray
    v_prior_sd: FloatArray
    tau_prior_scale: FloatArray | None
    phi_labels: tuple[str, ...]

    def __post_init__(self) -> None:
        size = self.sums.num_parameters
        if not 0.0 < self.sampling_rate <= 1.0:
            raise ArgumentError(f"sampling_rate must be in (0, 1] (got {self.sampling_rate}).")
        if len(self.phi_labels) != size or len(set(self.phi_labels)) != size:
            raise ArgumentError(f"phi_labels must be {size} different names (got {len(self.phi_labels)}).")
        self._refuse(self.sums.s_pp == 0, "never moved within the window, so nothing can be learned from it")
        names = _VECTORS if self.tau_prior_scale is None else (*_VECTORS, "tau_prior_scale")
        for name in names:
            array = _read_only(getattr(self, name))
            object.__setattr__(self, name, array)
            if array.shape != (size,):
                raise ArgumentError(f"{name} must have shape ({size},) (got {array.shape}).")
            self._refuse(~np.isfinite(array), f"has a {name} that is not finite")
            if name in _POSITIVE:
                self._refuse(array <= 0, f"has a {name} that is not positive")

    def _refuse(self, is_bad: NDArray[np.bool_], complaint: str) -> None:
        """Raise one line that names the first coordinate marked bad, if there is one."""
        bad = np.flatnonzero(is_bad)
        if bad.size:
            more = f" (and {bad.size - 1} more coordinates)" if bad.size > 1 else ""
            raise ArgumentError(f"{self.phi_labels[bad[0]]!r}{more} {complaint}.")

    @property
    def num_parameters(self) -> int:
        """D, the number of variational parameters."""
        return self.sums.num_parameters

    def take(self, part: slice) -> "GradientModel":
        """Return the model of some coordinates: under a diagonal curvature they are independent."""
        sums, tau_scale = self.sums, self.tau_prior_scale
        vectors = {name: getattr(sums, name)[part] for name in SUM_NAMES}
        return GradientModel(
            sums=TraceSums(num_steps=sums.num_steps, **vectors),
            sampling_rate=self.sampling_rate,
            tau_prior_scale=None if tau_scale is None else tau_scale[part],
            phi_labels=self.phi_labels[part],
            **{name: getattr(self, name)[part] for name in _VECTORS},
        )


def join_models(models: Sequence[GradientModel]) -> GradientModel:
    """Return one model whose coordinates are those of all models, one after the other.

    Raises
    ------
    ArgumentError
        Unless they have one sampling rate, one window length, and all infer tau or none does.
    """
    first = models[0]
    shared = {(m.sampling_rate, m.sums.num_steps, m.tau_prior_scale is None) for m in models}
    if len(shared) > 1:
        raise ArgumentError("models must share sampling rate, window length and whether tau is inferred.")

    def joined(arrays: Sequence[FloatArray]) -> FloatArray:
        return np.concatenate(arrays)

    sums = {name: joined([getattr(m.sums, name) for m in models]) for name in SUM_NAMES}
    has_tau = first.tau_prior_scale is not None
    return GradientModel(
        sums=TraceSums(num_steps=first.sums.num_steps, **sums),
        sampling_rate=first.sampling_rate,
        tau_prior_scale=joined([cast(FloatArray, m.tau_prior_scale) for m in models]) if has_tau else None,
        phi_labels=tuple(f"{number}: {label}" for number, m in enumerate(models) for label in m.phi_labels),
        **{name: joined([getattr(m, name) for m in models]) for name in _VECTORS},
    )
