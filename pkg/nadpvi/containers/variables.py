"""Draws of theta as the model's named variables."""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nadpvi.description import ModelDescription
from nadpvi.models.parameters import constrain

__all__ = ["model_variables"]

Array = NDArray[np.float64]


def model_variables(description: ModelDescription, theta: Array) -> xr.Dataset:
    """Return draws of theta as the model's named variables, each on its own scale.

    Parameters
    ----------
    description : ModelDescription
        Gives the names, supports, dims and coords of the parameter blocks.
    theta : ndarray, shape (chain, draw, K)
        Unconstrained.

    Returns
    -------
    xarray.Dataset
        Variables with dims (chain, draw) and those of their parameter.
    """
    blocks = description.parameters
    coords: dict[str, Any] = {"chain": np.arange(theta.shape[0]), "draw": np.arange(theta.shape[1])}
    for block in blocks:
        for dim, labels in zip(block.dims, block.coords, strict=True):
            coords[dim] = np.array(labels, dtype=object)
    values = constrain(blocks, theta)
    variables = {block.name: (("chain", "draw", *block.dims), values[block.name]) for block in blocks}
    return xr.Dataset(variables, coords=coords)
