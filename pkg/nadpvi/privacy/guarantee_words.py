"""The parts of a guarantee in plain words, for somebody who decides about data and not about code."""

from nadpvi.privacy.parameters import ONE_RECORD, REPLACE_ONE
from nadpvi.privacy.selection import Selection

__all__ = ["change_in_words", "limits_in_words", "run_in_words"]


def change_in_words(*, unit: str, records_per_unit: int, neighbouring_relation: str) -> str:
    """Return what neighbouring data sets differ by, as the subject of a sentence.

    Examples
    --------
    >>> change_in_words(unit="one person", records_per_unit=3, neighbouring_relation="add_or_remove_one")
    'Adding or removing one person (up to 3 of whose records are used, all or none in a step)'
    """
    replaces = neighbouring_relation == REPLACE_ONE
    change = f"Replacing {unit} by another" if replaces else f"Adding or removing {unit}"
    if unit == ONE_RECORD:
        return change
    owner = "each with up to" if replaces else "up to"
    whose = "records used" if replaces else "of whose records are used"
    if records_per_unit == 1:
        return (
            f"{change} (each with one record used)"
            if replaces
            else f"{change} (one of whose records is used)"
        )
    return f"{change} ({owner} {records_per_unit} {whose}, all or none in a step)"


def run_in_words(
    *,
    unit: str,
    num_steps: int,
    sampling_rate: float,
    clip_norm: float,
    noise_multiplier: float,
    mechanism: str,
    selection: Selection | None,
    curvature_noise_multiplier: float | None = None,
) -> str:
    """Return what was done to the records, as a phrase without a verb."""
    chosen = ""
    if selection is not None:
        chosen = (
            f"the best, by noisy score, of a random number of runs (geometric with mean "
            f"{selection.mean_runs:g}; the noise on each score is {selection.score_noise_multiplier:g} times "
            f"what {unit} can change), each of "
        )
    noun = unit.removeprefix("one ")
    curvature = ""
    if curvature_noise_multiplier is not None:
        curvature = (
            f"; and then the curvature, one sum over all records with noise of "
            f"{curvature_noise_multiplier:g} times what a record may add, drawn likewise"
        )
    return (
        f"{chosen}{num_steps} noisy gradients, each over a Poisson sample that every {noun} "
        f"enters independently with probability {sampling_rate:g}, clipped to L2 norm {clip_norm:.6g} per "
        f"record, with noise of {noise_multiplier:g} clip norms ({mechanism}){curvature}"
    )


def limits_in_words(*, unit: str, neighbouring_relation: str, is_selected: bool) -> str:
    """Return what a guarantee does not cover, as main clauses."""
    parts = [
        "this covers one choice among runs" if is_selected else "this covers one run",
        "the budgets of further runs on the same records add up",
    ]
    if unit == ONE_RECORD:
        parts.append("a person with several records is protected only record by record")
    if neighbouring_relation == REPLACE_ONE:
        nouns = "records" if unit == ONE_RECORD else "people"
        parts.append(f"the number of {nouns} counts as public and is not protected")
    if is_selected:
        parts.append("how many runs there were, and all but the best, must stay secret")
    return f"{', '.join(parts[:-1])}, and {parts[-1]}"
