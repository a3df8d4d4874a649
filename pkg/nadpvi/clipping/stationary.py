"""Where a run with clipped gradients comes to rest, given the parameters behind its records. Public side.

With m(phi; theta) the mean of a record's clipped gradient over the model's outcomes and over the guide's
draws, and g(phi) the gradient of prior and entropy, the root phi0 of ``N m(phi; theta) + g(phi) = 0`` is
where N records of parameter theta put the optimum. Those of one table scatter it by ``A^-1 B A^-1``, A being
the Jacobian there and B = N times the variance, over records, of the clipped gradient's mean over draws.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.clipping.records import QuantileModel, WeightedRecords, weighted_records
from nadpvi.description import ModelDescription
from nadpvi.errors import ModelError
from nadpvi.guides.antithetic import draw_antithetic
from nadpvi.planning.curvature import scale_optimum
from nadpvi.public_term import public_gradient

__all__ = ["ClippedLoss", "StationaryPoints", "stationary_points"]

Array = NDArray[np.float64]

_NUM_SETS = 8  # of the guide's draws, each as many as a step takes
_LEAST_POINTS, _MOST_POINTS, _POINTS_PER_ROOT = 512, 4096, 20.0
_STEP = 1e-5  # of finite differences
_MOST_ITERATIONS = 60
_TOLERANCE = 1e-8
_LONGEST_MOVE = 1.0  # of a coordinate in one iteration


class ClippedLoss(NamedTuple):
    """What a run descends: public settings, and fixed sets of the guide's draws.

    Attributes
    ----------
    model : QuantileModel
        That of the description.
    description : ModelDescription
    clip_norm : float
        C.
    preconditioner : ndarray, shape (D,)
        beta.
    standard_normal : ndarray, shape (L, S, M)
        Noise of L sets of S draws.
    num_spread : int or None
        The number of records over which prior and entropy are spread; None where they are not clipped.
    """

    model: QuantileModel
    description: ModelDescription
    clip_norm: float
    preconditioner: Array
    standard_normal: Array
    num_spread: int | None

    @classmethod
    def of(
        cls,
        model: QuantileModel,
        description: ModelDescription,
        *,
        clip_norm: float,
        preconditioner: Array,
        num_draws: int,
        num_spread: int | None,
    ) -> "ClippedLoss":
        """Return the loss of a run with S = `num_draws` draws a step."""
        rng = np.random.default_rng(0)
        size = description.guide.num_noise(len(description.names))
        sets = np.array([draw_antithetic(rng, num_draws=num_draws, size=size) for _ in range(_NUM_SETS)])
        # Of variance 1 together, as many more would be: the gradient of a scale hangs on it.
        sets /= np.sqrt(np.square(sets).mean(axis=(0, 1)))
        return cls(model, description, clip_norm, preconditioner, sets, num_spread)


class StationaryPoints(NamedTuple):
    """Where runs come to rest at G parameters.

    Attributes
    ----------
    phi : ndarray, shape (G, D)
    jacobian : ndarray, shape (G, D, D)
        A.
    covariance : ndarray, shape (G, D, D)
        A^-1 B A^-1.
    """

    phi: Array
    jacobian: Array
    covariance: Array


def stationary_points(loss: ClippedLoss, theta: Array, *, num_records: float) -> StationaryPoints:
    """Return the stationary points at parameters `theta`, shape (G, K), by Newton's method.

    Raises
    ------
    ModelError
        If it does not converge.
    """
    # Their error falls with the number of points, and what the records scatter with the root of theirs.
    points = int(np.clip(_POINTS_PER_ROOT * num_records**0.5, _LEAST_POINTS, _MOST_POINTS))
    records = weighted_records(loss.model, loss.description, theta, num_points=points)
    phi = _start(loss, theta, records=records, num_records=num_records)
    for _ in range(_MOST_ITERATIONS):
        value, jacobian = _with_jacobian(loss, phi, records=records, num_records=num_records)
        move = np.linalg.solve(jacobian, -value[..., None])[..., 0]
        phi = phi + np.clip(move, -_LONGEST_MOVE, _LONGEST_MOVE)
        if np.abs(move).max() < _TOLERANCE:
            break
    else:
        raise ModelError("clipping cannot be corrected: where such a run comes to rest was not found.")
    _, jacobian = _with_jacobian(loss, phi, records=records, num_records=num_records)
    spread = num_records * _record_variance(loss, phi, records=records)
    half = np.linalg.solve(jacobian, spread)
    covariance = np.linalg.solve(jacobian, half.swapaxes(-1, -2))
    return StationaryPoints(phi, jacobian, covariance)


def _start(loss: ClippedLoss, theta: Array, *, records: WeightedRecords, num_records: float) -> Array:
    """Return where Newton's method starts: the optimum without clipping, nearly."""
    guide: Any = loss.description.guide  # any guide's scales are those of a mean-field one, to begin with
    design = loss.description.design
    num_params = theta.shape[1]
    _, prior_sd = loss.model.prior_moments(design)
    phi = np.tile(guide.initial(mean=np.zeros(num_params), u=0.0), (len(theta), 1))
    phi[:, :num_params] = theta
    curvature = num_records * records.information + prior_sd**-2.0
    phi[:, num_params : 2 * num_params] = scale_optimum(guide, curvature)
    return phi


def _with_jacobian(
    loss: ClippedLoss, phi: Array, *, records: WeightedRecords, num_records: float
) -> tuple[Array, Array]:
    """Return ``N m + g`` (G, D) and its Jacobian (G, D, D), by forward differences, at G iterates."""
    dimension = phi.shape[1]
    moved = phi + _STEP * np.eye(dimension)[:, None, :]
    mean, public = _mean_gradient(loss, np.concatenate([phi[None], moved]), records=records)
    total = num_records * mean + public
    jacobian = np.moveaxis((total[1:] - total[0]) / _STEP, 0, -1)
    return total[0], jacobian


def _mean_gradient(loss: ClippedLoss, phi: Array, *, records: WeightedRecords) -> tuple[Array, Array]:
    """Return the mean clipped gradient and the public gradient, each (E, G, D), at iterates (E, G, D)."""
    mean, public = np.zeros((2, *phi.shape))
    for normal in loss.standard_normal:
        rows, public_part = _clipped_rows(loss, phi, records=records, standard_normal=normal)
        mean += np.einsum("gn,egnd->egd", records.weights, rows)
        public += public_part
    sets = len(loss.standard_normal)
    return mean / sets, public / sets


def _record_variance(loss: ClippedLoss, phi: Array, *, records: WeightedRecords) -> Array:
    """Return the variance over records of the gradient's mean over draws, (G, D, D), at iterates (G, D)."""
    rows = np.zeros(())
    for normal in loss.standard_normal:
        rows = rows + _clipped_rows(loss, phi[None], records=records, standard_normal=normal)[0][0]
    rows = rows / len(loss.standard_normal)
    mean = np.einsum("gn,gnd->gd", records.weights, rows)
    centred = rows - mean[:, None, :]
    return np.asarray(np.einsum("gn,gnd,gne->gde", records.weights, centred, centred))


def _clipped_rows(
    loss: ClippedLoss, phi: Array, *, records: WeightedRecords, standard_normal: Array
) -> tuple[Array, Array]:
    """Return each point's clipped gradient (E, G, n, D) and what is added after clipping (E, G, D)."""
    guide = loss.description.guide
    noise = standard_normal[:, None, None, :]
    theta = guide.draw(phi, noise)
    public = public_gradient(loss.description, phi=phi, standard_normal=noise, theta=theta)
    slopes = -np.moveaxis(loss.model.natural_gradient(theta), -2, 1)
    matrix = guide.pull_back(phi, theta_gradient=slopes, standard_normal=noise[:, None])
    if loss.num_spread is not None:
        matrix[-1] += public / loss.num_spread
        public = np.zeros_like(public)
    matrix *= loss.preconditioner
    rows = records.statistics @ np.moveaxis(matrix, 0, -2)
    norms = np.sqrt(np.square(rows).sum(axis=-1, keepdims=True))
    rows *= loss.clip_norm / np.maximum(norms, loss.clip_norm)
    rows /= loss.preconditioner
    return rows, public
