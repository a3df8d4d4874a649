"""One example of each conjugate model, and a schema with an outcome for each."""

from nadpvi.models import BernoulliBeta, CategoricalDirichlet, ExponentialGamma, Normal, PoissonGamma
from nadpvi.schema import Schema

SCHEMA = Schema.from_dict(
    {
        "columns": {
            "wait": {"kind": "real", "lower": 0, "upper": 50},
            "heads": {"kind": "binary", "levels": ["no", "yes"]},
            "blood": {"kind": "categorical", "levels": ["0", "A", "B", "AB"]},
            "visits": {"kind": "count", "upper": 40},
            "height": {"kind": "real", "lower": -20, "upper": 30},
        }
    }
)
EXAMPLES = {
    "exponential_gamma": ExponentialGamma(outcome="wait", prior_shape=8.0, prior_rate=2.0),
    "bernoulli_beta": BernoulliBeta(outcome="heads", prior_alpha=10.0, prior_beta=4.0),
    "categorical_dirichlet": CategoricalDirichlet(outcome="blood", concentration=(5.0, 3.0, 2.0, 4.0)),
    "poisson_gamma": PoissonGamma(outcome="visits", prior_shape=3.0, prior_rate=1.5),
    "normal": Normal(
        outcome="height", prior_mean=1.5, prior_precision_factor=0.4, prior_shape=3.0, prior_scale=5.0
    ),
}
