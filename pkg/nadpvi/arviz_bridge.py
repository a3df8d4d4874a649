"""All that depends on which ArviZ is installed: 0.23 and 1.x are both supported, and only here.

ArviZ is imported inside functions: its import is slow, prints a notice once a day, and fails where no cache
folder can be made. No fit needs it: without it, convergence is not judged.
"""

import math
import os
import sys
import tempfile
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nadpvi.errors import SamplerWarning

__all__ = ["arviz_version", "as_draws", "convergence", "has_arviz", "to_arviz"]

# Chains are split in halves of at least two draws.
_MIN_DRAWS = 4
_MISSING = "ArviZ is not installed; pip install arviz."


def _import() -> Any:
    """Return the arviz module, without its notices.

    ArviZ 0.23 makes a cache folder when it is imported and fails where it may not; it then gets a temporary
    one.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import arviz
        except OSError:
            _forget_half_an_import()
            with tempfile.TemporaryDirectory(prefix="nadpvi-arviz-") as folder:
                before = os.environ.get("XDG_CACHE_HOME")
                os.environ["XDG_CACHE_HOME"] = folder
                try:
                    import arviz
                finally:
                    if before is None:
                        del os.environ["XDG_CACHE_HOME"]
                    else:
                        os.environ["XDG_CACHE_HOME"] = before
    return arviz


def _forget_half_an_import() -> None:
    """Drop what a failed import of ArviZ left behind, so that the next try starts afresh."""
    for name in [name for name in sys.modules if name == "arviz" or name.startswith("arviz.")]:
        del sys.modules[name]


def has_arviz() -> bool:
    """Return whether ArviZ can be imported."""
    try:
        _import()
    except ImportError:
        return False
    return True


def arviz_version() -> tuple[int, int]:
    """Return (major, minor) of the installed ArviZ.

    Raises
    ------
    ImportError
        If there is none.
    """
    from importlib.metadata import PackageNotFoundError, version

    try:
        major, minor = version("arviz").split(".")[:2]
    except PackageNotFoundError:
        raise ImportError(_MISSING) from None
    return int(major), int(minor)


def to_arviz(tree: xr.DataTree) -> Any:
    """Return the installed ArviZ's own container for the groups of `tree`.

    InferenceData for ArviZ 0.x; the DataTree itself for 1.x, which works on it directly.

    Raises
    ------
    ImportError
        If there is no ArviZ.
    """
    if arviz_version()[0] >= 1:
        return tree
    groups = {name: node.to_dataset() for name, node in tree.children.items()}
    return _import().InferenceData(attrs=dict(tree.attrs), **groups)


def as_draws(arrays: Mapping[str, NDArray[np.float64]]) -> xr.Dataset:
    """Return arrays of shape (chain, draw, ...) as a Dataset, what `convergence` takes.

    ArviZ's own converters differ between its majors, and read an array's axes differently.
    """
    return xr.Dataset(
        {
            name: (("chain", "draw", *(f"{name}_{axis}" for axis in range(array.ndim - 2))), array)
            for name, array in arrays.items()
        }
    )


def convergence(posterior: xr.Dataset) -> dict[str, xr.Dataset]:
    """Return ``ess_bulk``, ``ess_tail`` and ``r_hat`` of every variable (Vehtari et al. 2021).

    R-hat is NaN for a single chain, since it compares chains; everything is for fewer than four draws, and
    where there is no ArviZ.

    Parameters
    ----------
    posterior : xarray.Dataset
        Variables with dims (chain, draw, ...).

    Warns
    -----
    SamplerWarning
        If there is no ArviZ.
    """
    missing = xr.full_like(posterior.isel(chain=0, draw=0, drop=True), math.nan, dtype=float)
    if posterior.sizes["draw"] < _MIN_DRAWS:
        return {"ess_bulk": missing, "ess_tail": missing, "r_hat": missing}
    if not has_arviz():
        warnings.warn(f"ESS and R-hat are NaN: {_MISSING}", SamplerWarning, stacklevel=3)
        return {"ess_bulk": missing, "ess_tail": missing, "r_hat": missing}
    arviz = _import()
    data = to_arviz(xr.DataTree.from_dict({"posterior": posterior}))
    with warnings.catch_warnings():
        # A column that never moves divides zero by zero; it shows as NaN in the table.
        warnings.simplefilter("ignore")
        ess_bulk, ess_tail = arviz.ess(data, method="bulk"), arviz.ess(data, method="tail")
        r_hat = arviz.rhat(data) if posterior.sizes["chain"] > 1 else missing
    return {"ess_bulk": _dataset(ess_bulk), "ess_tail": _dataset(ess_tail), "r_hat": _dataset(r_hat)}


def _dataset(value: Any) -> xr.Dataset:
    """Return the Dataset inside whatever this ArviZ returned."""
    if isinstance(value, xr.Dataset):
        return value
    node = value["posterior"] if "posterior" in getattr(value, "children", {}) else value
    dataset: xr.Dataset = node.to_dataset()
    return dataset
