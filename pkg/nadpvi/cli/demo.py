"""nadpvi demo: the main job on UCI Adult."""

from pathlib import Path
from typing import Annotated

import typer

from nadpvi.cli import options
from nadpvi.cli.console import print_frame, print_json, print_text, say, warnings_as_lines
from nadpvi.cli.summary import print_posterior

__all__ = ["demo"]

_FORMATS = {"accuracy": ".4f", "log_score": ".4f", "brier": ".4f", "calibration_error": ".4f"}


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the files.")] = Path(
        "nadpvi-demo"
    ),
    published: Annotated[
        bool, typer.Option("--published", help="The paper's settings: T = 10,000, clip norm 11, beta_u 550.")
    ] = False,
    epsilon: options.Epsilon = 1.0,
    delta: options.Delta = 1e-5,
    seed: options.Seed = None,
    insecure_seed: options.InsecureSeed = None,
    engine: options.EngineName = "auto",
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fit UCI Adult, and score the posterior beside two others.

    They are the last iterate, taken for the truth, and the posterior without privacy. No network is needed.

    Example: nadpvi demo --output nadpvi-demo
    """
    from nadpvi.demo import run_demo

    with warnings_as_lines():
        result = run_demo(
            output,
            published=published,
            epsilon=epsilon,
            delta=delta,
            seed=seed,
            insecure_seed=insecure_seed,
            engine=engine,
            overwrite=force,
            progress=not quiet,
            say=lambda text: say(text, quiet=quiet),
        )
        if json:
            guarantee = result.posteriors["noise-aware"].guarantee
            print_json(
                {
                    "guarantee": None if guarantee is None else guarantee.to_dict(),
                    "scores": result.scores.to_dict(orient="index"),
                    "files": {name: str(path) for name, path in result.files.items()},
                }
            )
            return
        print_posterior(result.posteriors["noise-aware"], as_json=False)
    print_frame(result.scores, title="Scores on the complete test rows", formats=_FORMATS)
    for path in result.files.values():
        print_text(f"written: {path}")
