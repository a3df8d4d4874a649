"""Hard coordinates for the exact method, and their posteriors by brute force on fine grids."""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from nadpvi import gradient_model as gm
from nadpvi.bijectors import softplus

RATE = 0.1

# Per case: slope and mean gradient in their own standard errors, or absolute (units of noise_std) where named
# so.
CASES = {
    "plain": {"curvature": 100.0, "s_pp": 4.0},
    "no information, wide prior": {"curvature": 3e6, "s_pp": 1e-12},
    "no information, proper prior": {"curvature": 1.0, "s_pp": 1e-12, "v_prior": (1.0, 2.0)},
    "negative slope": {"slope_z": -3.0, "s_pp": 4.0},
    "negative slope, large units": {"slope_z": -2.0, "s_pp": 1e-6, "gradient_z": 1.0},
    "hugs zero": {"slope_z": -1.0, "s_pp": 1e4, "v_prior": (-1.0, 1.5)},
    "long left tail": {"curvature": 60.0, "s_pp": 0.25, "v_prior": (0.0, 1000.0), "gradient_z": 0.5},
    "two modes": {"curvature": 30.0, "s_pp": 4.0, "v_prior": (-100.0, 20.0)},
    "barrier at zero": {"curvature": 20.0, "s_pp": 0.5, "gradient_z": 30.0},
    "prior of phi_star apart": {"curvature": 40.0, "s_pp": 2.0, "delta_prior": (5.0, 0.5), "gradient_z": 2.0},
    "tiny units": {"curvature": 80.0, "s_pp": 4.0, "noise_std": 1e-5, "v_prior": (80.0, 5.0)},
    "huge units": {"curvature": 80.0, "s_pp": 4.0, "noise_std": 1e5},
    "very precise": {"curvature": 500.0, "s_pp": 1e10},
    "well determined": {"curvature": 500.0, "s_pp": 400.0, "residual": 30.0},
    "tau well above the noise": {"curvature": 100.0, "s_pp": 4.0, "residual": 30.0},
    "tau prior too narrow": {"curvature": 100.0, "s_pp": 4.0, "residual": 400.0, "tau_scale": 0.5},
    "tau prior very wide": {"curvature": 100.0, "s_pp": 4.0, "tau_scale": 1e4},
    "less noise than declared": {"curvature": 100.0, "s_pp": 4.0, "residual": 0.5},
}


def _one(n, *, s_pp, curvature=None, slope_z=None, gradient_z=0.0, residual=1.0, noise_std=1.0, **priors):
    """One coordinate's numbers: slope and residual are what its curvature or z-score asks for."""
    slope = noise_std * slope_z / np.sqrt(s_pp) if curvature is None else RATE * curvature
    prior_v = (abs(slope) / RATE, noise_std / (RATE * np.sqrt(s_pp)))
    delta_mean, delta_sd = priors.get("delta_prior", (0.0, 1.0))
    left = (n - 2) * residual * noise_std**2
    return {
        "phi_bar": 0.7,
        "g_bar": noise_std * gradient_z / np.sqrt(n),
        "s_pp": s_pp,
        "s_gp": slope * s_pp,
        "s_gg": left + slope**2 * s_pp,
        "noise_std": noise_std,
        "phi_star_prior_mean": 0.7 + delta_mean,
        "phi_star_prior_sd": delta_sd,
        "v_prior_mean": priors.get("v_prior", prior_v)[0],
        "v_prior_sd": priors.get("v_prior", prior_v)[1],
        "tau_prior_scale": priors.get("tau_scale", 2.0) * noise_std,
    }


def make_cases(num_steps, *, use_tau, names=tuple(CASES)):
    """All cases as the coordinates of one model."""
    rows = [_one(num_steps, **CASES[name]) for name in names]
    columns = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    sums = {key: columns.pop(key) for key in ("phi_bar", "g_bar", "s_pp", "s_gp", "s_gg")}
    if not use_tau:
        columns["tau_prior_scale"] = None
    return gm.GradientModel(
        sums=gm.TraceSums(num_steps=num_steps, **sums), sampling_rate=RATE, phi_labels=names, **columns
    )


def one_coordinate(model, d):
    """The model of coordinate d alone."""
    sums = {key: getattr(model.sums, key)[[d]] for key in ("phi_bar", "g_bar", "s_pp", "s_gp", "s_gg")}
    rest = {
        key: getattr(model, key)[[d]]
        for key in ("noise_std", "phi_star_prior_mean", "phi_star_prior_sd", "v_prior_mean", "v_prior_sd")
    }
    return gm.GradientModel(
        sums=gm.TraceSums(num_steps=model.sums.num_steps, **sums),
        sampling_rate=model.sampling_rate,
        tau_prior_scale=None if model.tau_prior_scale is None else model.tau_prior_scale[[d]],
        phi_labels=(model.phi_labels[d],),
        **rest,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Reference:
    """Nodes of a fine grid of (v, tau) and their probabilities; tau's are middles of cells between edges."""

    v: np.ndarray
    width: np.ndarray
    tau: np.ndarray
    tau_edges: np.ndarray
    weight: np.ndarray
    model: gm.GradientModel
    log_mass: float

    def moments(self, name):
        """Mean and sd of v, curvature, tau or phi_star."""
        values = {
            "v": self.v[:, None],
            "curvature": softplus(self.v)[:, None],
            "tau": self.tau[None, :],
        }
        extra = 0.0
        if name == "phi_star":
            mean, precision = self.conditional()
            values["phi_star"], extra = self.model.sums.phi_bar[0] + mean, 1.0 / precision
        value = values[name]
        mean = (self.weight * value).sum()
        return mean, np.sqrt((self.weight * (np.square(value - mean) + extra)).sum())

    def conditional(self):
        tau = None if self.model.tau_prior_scale is None else self.tau[None, :, None]
        mean, precision = gm.conditional_delta(self.model, v=self.v[:, None, None], tau=tau)
        return mean[..., 0], precision[..., 0]

    def distribution(self, name, points):
        """Distribution function of v, tau or phi_star at ascending points."""
        if name == "phi_star":
            mean, precision = self.conditional()
            keep = self.weight > 1e-9
            z = (points[:, None] - self.model.sums.phi_bar[0] - mean[keep]) * np.sqrt(precision[keep])
            return ndtr(z) @ self.weight[keep]
        if name == "tau":
            edges, steps = self.tau_edges, self.weight.sum(axis=0)
        else:
            density = self.weight.sum(axis=1) / self.width
            edges, steps = self.v, 0.5 * (density[1:] + density[:-1]) * np.diff(self.v)
        return np.interp(points, edges, np.concatenate([[0.0], np.cumsum(steps)]))


def _v_grid(model, count):
    """Ascending grid through everything that can matter: linear about each scale, sinh-spaced about 0."""
    sums, rate = model.sums, model.sampling_rate
    m, r = model.v_prior_mean[0], model.v_prior_sd[0]
    se = model.noise_std[0] / (rate * np.sqrt(sums.s_pp[0]))
    slope = sums.slope[0] / rate
    combined = 1.0 / np.sqrt(1.0 / r**2 + 1.0 / se**2)
    centre = (m / r**2 + slope / se**2) * combined**2
    line = np.linspace(-1.0, 1.0, count)
    far = 12.0 * r + abs(m)
    pieces = [
        m + 12.0 * r * line,
        np.clip(slope + 40.0 * se * line, m - 12.0 * r, m + 12.0 * r),
        centre + 12.0 * combined * line,
        1e-3 * np.sinh(np.arcsinh(1e3 * far) * line),
        30.0 * line,
    ]
    grid = np.unique(np.concatenate(pieces))
    return grid[(grid >= m - 12.0 * r) & (grid <= m + 12.0 * r)]


def brute_force(model, d, *, v_count=4000, tau_count=1500, drop=45.0):
    """The posterior of coordinate d on a fine grid, from the package's twin density."""
    one = one_coordinate(model, d)
    v = _v_grid(one, v_count)
    if one.tau_prior_scale is None:
        tau, tau_width, tau_edges = np.zeros(1), np.ones(1), np.zeros(2)
    else:
        tau, tau_width, tau_edges = _tau_grid(one, v, tau_count)
    use_tau = one.tau_prior_scale is not None

    def log_density(v, tau):
        taus = tau[None, :, None] if use_tau else None
        return gm.log_collapsed(one, v=v[:, None, None], tau=taus)[..., 0].reshape(v.size, tau.size)

    # a first look along v drops what cannot matter
    coarse = log_density(v, tau[:: max(1, tau.size // 60)]).max(axis=1)
    keep = np.flatnonzero(coarse > coarse.max() - drop)
    v = v[max(keep[0] - 1, 0) : keep[-1] + 2]
    width = np.gradient(v)
    width[[0, -1]] *= 0.5
    log_cells = log_density(v, tau)
    top = log_cells.max()
    weight = np.exp(log_cells - top) * width[:, None] * tau_width
    total = weight.sum()
    return Reference(
        v=v,
        width=width,
        tau=tau,
        tau_edges=tau_edges,
        weight=weight / total,
        model=one,
        log_mass=top + np.log(total),
    )


def _tau_grid(model, v, count):
    """Middles, widths and edges of cells in tau, uniform in asinh(tau / noise_std) over what can matter."""
    noise = model.noise_std[0]
    left = np.sqrt(model.sums.s_gg[0] / model.sums.num_steps)
    low, high = 0.0, np.arcsinh(10.0 * (model.tau_prior_scale[0] + left) / noise)
    some_v = v[:: max(1, v.size // 4000), None, None]
    for _ in range(12):
        edges = np.linspace(low, high, 201)
        x = 0.5 * (edges[1:] + edges[:-1])
        log_density = gm.log_collapsed(model, v=some_v, tau=noise * np.sinh(x)[None, :, None])[..., 0]
        ridge = log_density.max(axis=0) + np.log(np.cosh(x))
        keep = np.flatnonzero(ridge > ridge.max() - 40.0)
        low, high = edges[max(keep[0] - 1, 0)], edges[min(keep[-1] + 2, 200)]
    edges = np.linspace(low, high, count + 1)
    x, step = 0.5 * (edges[1:] + edges[:-1]), (high - low) / count
    return noise * np.sinh(x), noise * np.cosh(x) * step, noise * np.sinh(edges)
