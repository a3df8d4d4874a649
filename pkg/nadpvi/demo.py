"""The main job on real people: UCI Adult from table to posterior, with what it costs beside it."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from nadpvi.baselines import last_iterate_posterior, non_private_posterior
from nadpvi.containers.posterior import Posterior
from nadpvi.containers.storage import check_writable
from nadpvi.datasets import ADULT_PREDICTORS, adult_schema, load_adult
from nadpvi.errors import FileError
from nadpvi.figures.rivals import write_calibration
from nadpvi.inference.api import check_inference, infer
from nadpvi.inference.methods import resolve_method
from nadpvi.models import LogisticRegression
from nadpvi.planning.resolve import resolve_config
from nadpvi.privacy.budget import PrivacyBudget
from nadpvi.private.curator import release
from nadpvi.scores import predict_rows, score_binary

__all__ = ["DEMO_NUM_RECORDS", "DemoResult", "run_demo"]

# A public guess, as a user makes one: the data set's page speaks of some 30,000 people for training.
DEMO_NUM_RECORDS = 30_000
# Of the dense method, which takes half a minute for them; NUTS on a diagonal curvature is quick, and has
# infer's own numbers.
_DENSE_DRAWS, _DENSE_WARMUP = 500, 500

_FILES = ("release.nc", "posterior.nc", "calibration.png")


class DemoResult(NamedTuple):
    """What the demo made: posteriors by label, their scores on the test rows, and files by name."""

    posteriors: dict[str, Posterior]
    scores: pd.DataFrame
    files: dict[str, Path]


def run_demo(
    folder: Path,
    *,
    published: bool = False,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    seed: int | None = None,
    insecure_seed: int | None = None,
    engine: str = "auto",
    overwrite: bool = False,
    progress: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> DemoResult:
    """Fit UCI Adult privately, write the release and the posterior, and score them beside two baselines.

    Parameters
    ----------
    folder : Path
        Where ``release.nc``, ``posterior.nc`` and ``calibration.png`` go; created if need be.
    published : bool
        Use the paper's settings instead of those that are suggested for `DEMO_NUM_RECORDS`.
    epsilon, delta : float
        The privacy budget.
    seed : int, optional
        Seed of the post-processing.
    insecure_seed : int, optional
        Seed of a simulation, whose release is stamped not private.
    engine : str
        Stan engine: "auto" infers as `infer` does by itself, without Stan where a curvature was released; any
        other runs NUTS there.
    overwrite, progress : bool
        Whether files may be replaced, and whether bars are shown.
    say : callable
        Receives one line before each stage.
    """
    budget = PrivacyBudget(epsilon=epsilon, delta=delta)
    model = LogisticRegression(outcome="income", predictors=ADULT_PREDICTORS)
    schema = adult_schema()
    config = resolve_config(
        model,
        budget,
        schema=schema,
        settings="published" if published else "suggested",
        num_records=None if published else DEMO_NUM_RECORDS,
    )
    method, _ = resolve_method(
        "auto", phi_star_prior=None, has_curvature=config.curvature_share > 0.0, engine=engine
    )
    check_inference(num_steps=config.num_steps, method=method, seed=seed, engine=engine)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot make folder {folder}: {error.strerror}.") from error
    files = {name: check_writable(folder / name, overwrite=overwrite) for name in _FILES}
    train, test = load_adult("train"), load_adult("test")

    say(f"fitting {len(model.predictors or ())} columns of UCI Adult under epsilon = {epsilon:g} ...")
    made = release(
        model,
        train,
        schema=schema,
        privacy=budget,
        config=config,
        insecure_seed=insecure_seed,
        progress=progress,
    )
    made.save(files["release.nc"], overwrite=overwrite)

    sizes = {"draws": _DENSE_DRAWS, "warmup": _DENSE_WARMUP} if method == "dense" else {}
    say(f"sampling the post-processing model, method {method} ...")
    posterior = infer(made, seed=seed, engine=engine, **sizes)  # type: ignore[arg-type]
    posterior.save(files["posterior.nc"], overwrite=overwrite)

    say("scoring on the test rows, with two baselines beside ...")
    posteriors = {
        "noise-aware": posterior,
        "last iterate (naive)": last_iterate_posterior(made, seed=seed),
        "non-private": non_private_posterior(model, train, schema=schema, seed=seed),
    }
    scored = {label: predict_rows(item, test) for label, item in posteriors.items()}
    scores = pd.DataFrame({label: score_binary(rows)._asdict() for label, rows in scored.items()})
    scores = scores.T.rename_axis("posterior")
    write_calibration(scored, path=files["calibration.png"], overwrite=overwrite)
    return DemoResult(posteriors=posteriors, scores=scores, files=files)
