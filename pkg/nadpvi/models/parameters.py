"""The named parameters of a model: what the posterior shows, and how theta's coordinates make them up."""

from dataclasses import dataclass

__all__ = ["Parameter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A named block of model parameters, as the posterior will show it.

    Parameters
    ----------
    name : str
        Variable name, such as ``coefficients``.
    support : str
        Where its values live, a key of `nadpvi.supports.SUPPORTS`.
    dims : tuple of str
        Names of its dimensions; none for a number.
    coords : tuple of tuple of str
        Unique labels along each dimension.
    """

    name: str
    support: str = "real"
    dims: tuple[str, ...] = ()
    coords: tuple[tuple[str, ...], ...] = ()
