"""Settings as a person would write them."""

__all__ = ["rounded"]


def rounded(value: float) -> float:
    """Return a setting with three significant digits, as a person would write it."""
    return float(f"{value:.3g}")
