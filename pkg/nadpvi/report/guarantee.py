"""The report's first part: what is promised, in words and in numbers, and what is taken to be public."""

import math
from typing import NamedTuple

from nadpvi.containers.posterior_like import PROMISE, PosteriorLike
from nadpvi.markup import shown_number
from nadpvi.privacy.guarantee import Guarantee
from nadpvi.privacy.guarantee_words import change_in_words, limits_in_words
from nadpvi.privacy.parameters import ONE_RECORD, REPLACE_ONE

__all__ = ["GuaranteePart", "best_guess", "guarantee_part"]


class GuaranteePart(NamedTuple):
    """What the page says about privacy.

    Attributes
    ----------
    stamp : "private", "not-private" or "none"
    headline : str
    sentence : str
        The whole guarantee in one sentence, as every command prints it.
    words : tuple of str
        The same in plain paragraphs.
    numbers : tuple of (str, str)
    public : tuple of str
        What is assumed to be public.
    """

    stamp: str
    headline: str
    sentence: str
    words: tuple[str, ...]
    numbers: tuple[tuple[str, str], ...]
    public: tuple[str, ...]


def best_guess(*, epsilon: float, delta: float) -> float:
    """Return how often the best test can be right about which of two neighbouring data sets was used.

    Even odds before; every test's false alarm rate a and missed rate b obey ``a + exp(epsilon) b >= 1 -
    delta`` and the same with a and b exchanged [1]_, so that 1 - (a + b) / 2 is at most
    ``(exp(epsilon) + delta) / (exp(epsilon) + 1)``.

    References
    ----------
    .. [1] Kairouz, Oh and Viswanath (2015). The composition theorem for differential privacy. ICML.

    Examples
    --------
    >>> round(best_guess(epsilon=1.0, delta=1e-5), 3), best_guess(epsilon=0.0, delta=0.0)
    (0.731, 0.5)
    """
    # exp(-epsilon) does not overflow.
    return (1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon))


def guarantee_part(posterior: PosteriorLike) -> GuaranteePart:
    """Return what the page says about a posterior's guarantee."""
    guarantee = posterior.guarantee
    if guarantee is None:
        return _without(str(posterior.settings.get(PROMISE, "")))
    if not guarantee.is_private:
        words = (
            f"Nothing is promised to the people in the data, because {guarantee.reason_not_private}.",
            "Use it to try things out on data that are public or made up. If the records are real, treat "
            "this page, the posterior and the release as you treat the records themselves.",
        )
        return GuaranteePart(
            stamp="not-private",
            headline="NOT PRIVATE",
            sentence=guarantee.sentence(),
            words=words,
            numbers=_numbers(guarantee),
            public=guarantee.assumed_public,
        )
    return GuaranteePart(
        stamp="private",
        headline=f"Differentially private: epsilon {guarantee.epsilon:.4g}, delta {guarantee.delta:g}",
        sentence=guarantee.sentence(),
        words=_words(guarantee),
        numbers=_numbers(guarantee),
        public=guarantee.assumed_public,
    )


def _without(promise: str) -> GuaranteePart:
    """Return the part about a posterior that carries no guarantee of a run of ours."""
    is_denied = promise.upper().startswith("NOT PRIVATE")
    words = "Treat this page like the data themselves unless you know better from elsewhere."
    if promise and not is_denied:
        return GuaranteePart("none", "A guarantee in words only", promise, (), (), ())
    return GuaranteePart(
        stamp="not-private" if is_denied else "none",
        headline="NOT PRIVATE" if is_denied else "No guarantee on record",
        sentence=promise or "The release behind this posterior came without a guarantee.",
        words=(words,),
        numbers=(),
        public=(),
    )


def _words(guarantee: Guarantee) -> tuple[str, ...]:
    """Return a private run's guarantee in plain paragraphs."""
    change = change_in_words(
        unit=guarantee.unit,
        records_per_unit=guarantee.records_per_unit,
        neighbouring_relation=guarantee.neighbouring_relation,
    )
    limits = limits_in_words(
        unit=guarantee.unit,
        neighbouring_relation=guarantee.neighbouring_relation,
        is_selected=guarantee.selection is not None,
    )
    replaces = guarantee.neighbouring_relation == REPLACE_ONE
    unit = "record" if guarantee.unit == ONE_RECORD else "person"
    question = f"which of two values a {unit} has" if replaces else f"whether a given {unit} is in the data"
    share = 100 * best_guess(epsilon=guarantee.epsilon, delta=guarantee.delta)
    return (
        f"{change} changes the probability of anything that can come out by at most a factor of "
        f"{shown_number(math.exp(min(guarantee.epsilon, 700.0)))}, plus {guarantee.delta:g}.",
        f"Somebody who knows everything else, and holds it for equally likely beforehand {question} or not, "
        f"is right about it in at most {share:.4g} % of cases after seeing all that was released; guessing "
        "is right in 50 %.",
        "That holds for whatever is computed from the release, however often and by whom: for this page too, "
        "except for a part on test rows, if there is one.",
        f"Its limits: {limits}. It does not hide what is true of people in general, only what one {unit} "
        "adds to it.",
    )


def _numbers(guarantee: Guarantee) -> tuple[tuple[str, str], ...]:
    """Return everything that the guarantee rests on, by name."""
    numbers = [
        ("epsilon", f"{guarantee.epsilon:.6g}"),
        ("delta", f"{guarantee.delta:g}"),
        ("neighbouring data sets", guarantee.neighbouring_relation.replace("_", " ")),
        ("unit of privacy", guarantee.unit),
        ("records used per unit", f"at most {guarantee.records_per_unit}"),
        ("noise multiplier", f"{guarantee.noise_multiplier:.6g}"),
        ("clip norm", f"{guarantee.clip_norm:.6g}"),
        ("noisy gradients", f"{guarantee.num_steps:,}"),
        ("sampling rate", f"{guarantee.sampling_rate:g} ({guarantee.sampler})"),
        ("mechanism", guarantee.mechanism),
        ("accounted by", f"{guarantee.accountant} {guarantee.accountant_version}"),
    ]
    if guarantee.curvature_noise_multiplier is not None:
        numbers.append(("curvature's noise multiplier", f"{guarantee.curvature_noise_multiplier:.6g}"))
    if guarantee.selection is not None:
        numbers.append(("chosen among runs, mean number", f"{guarantee.selection.mean_runs:g}"))
    if guarantee.is_private:
        share = 100 * best_guess(epsilon=guarantee.epsilon, delta=guarantee.delta)
        numbers.insert(2, ("right guesses, at most (50 % is chance)", f"{share:.4g} %"))
    return tuple(numbers)
