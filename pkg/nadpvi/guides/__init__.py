"""Variational families: how phi describes a distribution over unconstrained theta."""

from nadpvi.guides.mean_field import MeanField

__all__ = ["MeanField"]
