"""One purpose, one stream: where every random number of a run comes from."""

import dataclasses
import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass

import numpy as np

from nadpvi.errors import ArgumentError, PrivacyError

__all__ = ["Streams", "check_seed", "make_streams"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """The random streams of one private run.

    Parameters
    ----------
    subsample : numpy.random.Generator
        Poisson inclusion; secret, hence cryptographic in a real release.
    monte_carlo : numpy.random.Generator
        The guide's reparameterised draws; independent of the records, so not secret.
    noise : numpy.random.Generator or None
        Simulated noise; None in a real release, whose noise has its own source.
    rows : numpy.random.Generator
        The choice among a person's rows; secret as well.
    """

    subsample: np.random.Generator
    monte_carlo: np.random.Generator
    noise: np.random.Generator | None
    rows: np.random.Generator
    process: int = dataclasses.field(default_factory=os.getpid)

    def check_process(self) -> None:
        """Raise `PrivacyError` in a process other than that which made the streams."""
        if os.getpid() != self.process:
            raise PrivacyError(
                "random streams must not be shared with a forked process: its samples would repeat."
            )


def check_seed(name: str, seed: object) -> int:
    """Return `seed` as an int in [0, 2^64), or raise `ArgumentError`: the rule for seeds that users give."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= int(seed) < 2**64:
        raise ArgumentError(f"{name} must be a whole number from 0 to 2^64 - 1 (got {seed!r}).")
    return int(seed)


def make_streams(*, insecure_seed: int | None, secret: bytes | None = None) -> Streams:
    """Return fresh streams: from the operating system, or, for a simulation, from a seed.

    Parameters
    ----------
    insecure_seed : int or None
        None for a real release: inclusion draws come from ChaCha20 seeded by the operating system. A seed
        makes the run reproducible, hence not private; it is used here and stored nowhere.
    secret : bytes, optional
        Secret bytes that fix the choice among a person's rows, so that a resumed run makes the same one.
        Nothing else follows from them: sampling, noise and draws are fresh whenever this is called.
    """
    if insecure_seed is None:
        # The keys are set as they are: seeding would pass them through a generator that is not cryptographic.
        chosen = secrets.token_bytes(32) if secret is None else secret
        rows = _chacha(hmac.new(chosen, b"rows of a person", hashlib.sha256).digest())
        subsample = _chacha(secrets.token_bytes(32))
        return Streams(subsample=subsample, monte_carlo=np.random.default_rng(), noise=None, rows=rows)
    children = np.random.SeedSequence(check_seed("insecure_seed", insecure_seed)).spawn(4)
    subsample, monte_carlo, noise, rows = (np.random.default_rng(child) for child in children)
    return Streams(subsample=subsample, monte_carlo=monte_carlo, noise=noise, rows=rows)


def _chacha(key: bytes) -> np.random.Generator:
    """Return a ChaCha20 generator with a key of 32 bytes."""
    from randomgen import ChaCha

    return np.random.Generator(ChaCha(key=int.from_bytes(key, "little"), rounds=20))
