"""Public data sets that come with the package, for the demo and for tests."""

from nadpvi.datasets.adult import ADULT_OUTCOME, ADULT_PREDICTORS, adult_schema, load_adult

__all__ = ["ADULT_OUTCOME", "ADULT_PREDICTORS", "adult_schema", "load_adult"]
