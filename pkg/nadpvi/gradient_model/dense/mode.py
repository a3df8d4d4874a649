"""Where to start chains of a dense curvature: near the mode of its density.

That does not change what is sampled, so the search need not converge: any start is right, a good one quick.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from nadpvi.gradient_model.dense.density import DenseModel, evaluate
from nadpvi.gradient_model.dense.matrix import MatrixCoordinates

__all__ = ["find_start"]

FloatArray = NDArray[np.float64]

_MAX_ITERATIONS, _MEMORY = 300, 20
_OUTSIDE = 1e300  # the objective where there is no density: the line search turns back


def find_start(model: DenseModel) -> FloatArray:
    """Return coordinates about which chains start, shape (size,).

    Where no direction is preferred there is no mode to look for, and chains start from draws of the prior.
    """
    start = np.zeros(model.size)
    start[: model.coordinates.size] = model.coordinates.start()
    if isinstance(model.coordinates, MatrixCoordinates):
        return start
    variance = np.maximum(model.sums.s_gg / model.sums.num_steps, np.square(model.noise_std))[None]

    def objective(x: FloatArray) -> tuple[float, FloatArray]:
        found = evaluate(model, x[None], variance=variance)
        value = -float(found.log_density[0])
        return (value if np.isfinite(value) else _OUTSIDE), -found.gradient[0]

    result = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": _MAX_ITERATIONS, "maxcor": _MEMORY},
    )
    found: FloatArray = result.x if np.isfinite(result.x).all() else start
    return found
