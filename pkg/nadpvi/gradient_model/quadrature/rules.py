"""The 15-point Gauss-Kronrod rule on a panel, and running integrals of what is known at its nodes."""

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["FineNodes", "PanelRule", "fine_nodes", "panel_rule"]

FloatArray = NDArray[np.float64]

_GAUSS_SIZE = 7
_HALVINGS = 12


class PanelRule(NamedTuple):
    """Nodes and weights on [-1, 1].

    Attributes
    ----------
    nodes, weights : ndarray, shape (15,)
        Kronrod's rule, exact for polynomials of degree 22.
    gauss_weights : ndarray, shape (15,)
        The embedded 7-point Gauss rule, 0 at the other nodes; exact up to degree 13.
    running : ndarray, shape (15, 15)
        ``running @ f`` is the integral from -1 to each node of the polynomial through f at the nodes.
    """

    nodes: FloatArray
    weights: FloatArray
    gauss_weights: FloatArray
    running: FloatArray


class FineNodes(NamedTuple):
    """More points on [-1, 1], closer and closer towards both ends, for a density that stops at a panel's end.

    Attributes
    ----------
    nodes : ndarray, shape (M,)
    values, running : ndarray, shape (M, 15)
        ``values @ f`` and ``running @ f`` are the polynomial through f at the rule's nodes, and its integral
        from -1, at each point.
    """

    nodes: FloatArray
    values: FloatArray
    running: FloatArray


def _legendre(x: FloatArray, degree: int) -> FloatArray:
    """Return P_0(x), ..., P_degree(x), shape (len(x), degree + 1)."""
    return np.asarray(np.polynomial.legendre.legvander(x, degree), dtype=np.float64)


def _kronrod_nodes(gauss: FloatArray) -> FloatArray:
    """Return the nodes that Kronrod adds to Gauss's n: the roots of the Stieltjes polynomial of degree n + 1.

    It is orthogonal to all polynomials of degree up to n under the weight P_n, which gives a small linear
    system in Legendre coefficients.
    """
    count = gauss.size
    fine, fine_weights = np.polynomial.legendre.leggauss(2 * count + 2)
    values = _legendre(fine, count + 1)
    products = (values[:, : count + 1] * (values[:, count] * fine_weights)[:, None]).T @ values
    coefficients = np.append(np.linalg.lstsq(products[:, :-1], -products[:, -1])[0], 1.0)
    return np.sort(np.polynomial.legendre.legroots(coefficients).real)


@cache
def panel_rule() -> PanelRule:
    """Return the rule, computed once from its definition.

    Examples
    --------
    >>> rule = panel_rule()
    >>> round(float(rule.weights @ rule.nodes**2), 12), round(float(rule.gauss_weights @ rule.nodes**2), 12)
    (0.666666666667, 0.666666666667)
    """
    gauss, gauss_weights = np.polynomial.legendre.leggauss(_GAUSS_SIZE)
    nodes = np.sort(np.concatenate([gauss, _kronrod_nodes(gauss)]))
    nodes = 0.5 * (nodes - nodes[::-1])  # symmetric to the last bit
    running = _legendre_integrals(nodes, nodes.size) @ _to_coefficients(nodes)
    embedded = np.zeros(nodes.size)
    embedded[1::2] = gauss_weights
    return PanelRule(nodes, 2.0 * _to_coefficients(nodes)[0], embedded, running)


@cache
def fine_nodes() -> FineNodes:
    """Return the points, computed once.

    Examples
    --------
    >>> fine = fine_nodes()
    >>> bool(np.allclose(fine.values @ panel_rule().nodes**3, fine.nodes**3))
    True
    """
    nodes = panel_rule().nodes
    ends = 1.0 - (1.0 - nodes[-1]) * 0.5 ** np.arange(1, _HALVINGS + 1)
    points = np.concatenate([-ends[::-1], nodes, ends])
    change = _to_coefficients(nodes)
    return FineNodes(
        points, _legendre(points, nodes.size - 1) @ change, _legendre_integrals(points, nodes.size) @ change
    )


def _to_coefficients(nodes: FloatArray) -> FloatArray:
    """Return the matrix from values at the nodes to Legendre coefficients."""
    identity = np.eye(nodes.size)
    return np.asarray(np.linalg.solve(_legendre(nodes, nodes.size - 1), identity), dtype=np.float64)


def _legendre_integrals(x: FloatArray, size: int) -> FloatArray:
    """Return the integrals of P_0, ..., P_{size - 1} from -1 to x, shape (len(x), size).

    That of P_k is (P_{k+1}(x) - P_{k-1}(x)) / (2 k + 1), and x + 1 for k = 0.
    """
    values = _legendre(x, size)
    rest = ((values[:, k + 1] - values[:, k - 1]) / (2 * k + 1) for k in range(1, size))
    return np.column_stack([x + 1.0, *rest])
