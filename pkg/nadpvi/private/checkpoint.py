"""What an interrupted private run needs to go on. Private side: keep the file with the data.

A checkpoint holds the trace so far, which is public, and what recognises the same table later: a keyed
fingerprint of the records and settings, with its key. The fingerprint gives nothing away by itself, but
whoever has the file could test a guess of the *whole* table against it, so it is no part of a release.
"""

import hashlib
import hmac
import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nadpvi.checks import check_real
from nadpvi.config import DPVIConfig
from nadpvi.containers.storage import HEADER, load_file, to_netcdf, write_bytes
from nadpvi.description import ModelDescription
from nadpvi.errors import ArgumentError, PrivacyError
from nadpvi.mechanism import Mechanism, make_mechanism
from nadpvi.privacy.budget import PrivacyBudget
from nadpvi.private.inputs import Reading
from nadpvi.private.records import Records

__all__ = ["Checkpoint", "new_attempt", "new_checkpoint"]

Array = NDArray[np.float64]

_FORMAT_VERSION = 1
_SECRET_BYTES = 32
_LATER_SETTINGS = ("suggested_for", "early_factors")  # than the first checkpoints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Checkpoint:
    """An interrupted run, as far as it got.

    Attributes
    ----------
    mechanism : Mechanism
        The whole run as it was planned.
    phi, noisy_gradient : ndarray, shape (t, D)
        The trace of the t steps that were done.
    secret : bytes
        Key of the fingerprint, and of the choice among a person's rows. Private.
    fingerprint : str
        Keyed hash of records and settings. Private.
    attempt : str
        Name of the attempt that wrote the file (`nadpvi.attempts`).
    ledger : str or None
        Path of the ledger in which the run was reserved.
    entry : str or None
        Its entry there, for the steps from `entry_start` on.
    entry_start : int
        How many steps came before that entry; they have entries of their own.
    label : str
        Its label there.
    was_interrupted : bool
        Whether an earlier part of the run was.
    was_watched : bool
        Whether a callback saw some of the steps: all that is planned counts then, whenever the run ends.
    reading : Reading
        How the table is read.
    """

    mechanism: Mechanism
    phi: Array
    noisy_gradient: Array
    secret: bytes
    fingerprint: str
    attempt: str
    ledger: str | None
    entry: str | None
    entry_start: int
    label: str
    reading: Reading
    was_interrupted: bool = False
    was_watched: bool = False

    @property
    def num_steps(self) -> int:
        """How many steps were done."""
        return len(self.phi)

    @property
    def steps_left(self) -> int:
        """How many steps of the planned run are left."""
        return self.mechanism.settings.num_steps - self.num_steps

    def __repr__(self) -> str:
        return f"Checkpoint(private, {self.num_steps} steps done, {self.steps_left} left)"

    def check_records(self, records: Records) -> None:
        """Raise `PrivacyError` unless these are the records, under the settings, of the interrupted run."""
        found = _fingerprint(self.secret, self.mechanism, records=records)
        if not hmac.compare_digest(found, self.fingerprint):
            raise PrivacyError(
                "the table, or a setting, is not that of the interrupted run; resume it with the very same "
                "table, or start a new run."
            )

    def save(self, path: Path) -> None:
        """Write the checkpoint, whole or not at all, readable by its owner alone.

        Raises
        ------
        FileError
            If it cannot be written; an older checkpoint at `path` is still there then.
        """
        dims, header = ("step", "phi"), self._header()
        header["seal"] = _seal(self.secret, header, self.phi, self.noisy_gradient)
        variables = {"iterates": (dims, self.phi), "noisy_gradient": (dims, self.noisy_gradient)}
        data = xr.Dataset(variables, attrs={HEADER: json.dumps(header)})
        write_bytes(to_netcdf(data), path, overwrite=True, private=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Checkpoint":
        """Return the checkpoint in a file.

        Raises
        ------
        FileError
            If the file is missing, damaged, no checkpoint, or of a newer format.
        """
        return load_file(path, kind="checkpoint", format_version=_FORMAT_VERSION, build=cls._from_file)

    def _header(self) -> dict[str, Any]:
        """Everything that is not an array, as JSON types."""
        return {
            "kind": "checkpoint",
            "format_version": _FORMAT_VERSION,
            "settings": _settings(self.mechanism),
            "secret": self.secret.hex(),
            "fingerprint": self.fingerprint,
            "attempt": self.attempt,
            "ledger": self.ledger,
            "entry": self.entry,
            "entry_start": self.entry_start,
            "label": self.label,
            "was_interrupted": self.was_interrupted,
            "was_watched": self.was_watched,
            "reading": asdict(self.reading),
        }

    @classmethod
    def _from_file(cls, data: xr.DataTree, header: dict[str, Any]) -> "Checkpoint":
        """Build a checkpoint from what its file holds."""
        secret, seal = bytes.fromhex(header["secret"]), str(header.pop("seal"))
        phi, noisy_gradient = data["iterates"].to_numpy(), data["noisy_gradient"].to_numpy()
        if not hmac.compare_digest(seal, _seal(secret, header, phi, noisy_gradient)):
            raise ArgumentError("it was edited since nadpvi wrote it.")
        settings = header["settings"]
        config = DPVIConfig.from_dict(settings["config"])
        mechanism = make_mechanism(
            ModelDescription.from_dict(settings["description"]),
            privacy=PrivacyBudget(**settings["privacy"]),
            config=config,
            noise_multiplier=check_real("noise_multiplier", settings["noise_multiplier"]),
            discreteness=check_real("discreteness", settings["discreteness"]),
            curvature_noise_multiplier=settings.get("curvature_noise_multiplier"),
        )
        fits = 0 <= header["entry_start"] <= len(phi) <= config.num_steps and len(phi) > 0
        if not fits or phi.shape != noisy_gradient.shape:
            raise ArgumentError("its trace does not fit its settings.")
        return cls(
            mechanism=mechanism,
            phi=phi,
            noisy_gradient=noisy_gradient,
            secret=secret,
            fingerprint=str(header["fingerprint"]),
            attempt=str(header["attempt"]),
            ledger=header["ledger"],
            entry=header["entry"],
            entry_start=int(header["entry_start"]),
            label=str(header["label"]),
            was_interrupted=bool(header["was_interrupted"]),
            was_watched=bool(header.get("was_watched", False)),
            reading=Reading(**header.get("reading", {})),
        )


def new_checkpoint(
    mechanism: Mechanism,
    *,
    records: Records,
    secret: bytes,
    label: str,
    reading: Reading,
    was_watched: bool = False,
) -> Checkpoint:
    """Return the checkpoint of a run that has not done any step yet, and is in no ledger.

    Parameters
    ----------
    mechanism : Mechanism
        The run.
    records : Records
        What it will read. Private.
    secret : bytes
        32 random bytes. Private.
    label : str
        Its label in a ledger.
    reading : Reading
        How its table was read.
    was_watched : bool
        Whether a callback will see its steps.
    """
    if len(secret) != _SECRET_BYTES:
        raise ArgumentError(f"secret must have {_SECRET_BYTES} bytes (got {len(secret)}).")
    empty = np.zeros((0, mechanism.dimension))
    return Checkpoint(
        mechanism=mechanism,
        phi=empty,
        noisy_gradient=empty,
        secret=secret,
        fingerprint=_fingerprint(secret, mechanism, records=records),
        attempt=new_attempt(),
        ledger=None,
        entry=None,
        entry_start=0,
        label=label,
        reading=reading,
        was_watched=was_watched,
    )


def new_attempt() -> str:
    """Return a fresh random name for one continuation of a run."""
    return secrets.token_hex(16)


def _settings(mechanism: Mechanism) -> dict[str, Any]:
    """Return what defines a run, as JSON types."""
    privacy = mechanism.privacy
    if not isinstance(privacy, PrivacyBudget):
        raise ArgumentError("a checkpoint is for a private run.")
    config = mechanism.config.to_dict()
    for name in _LATER_SETTINGS:
        # As checkpoints were written before: their fingerprints still hold.
        if config[name] is None:
            del config[name]
    curvature = {"curvature_noise_multiplier": mechanism.curvature_noise_multiplier}
    if mechanism.curvature_noise_multiplier is None:
        # As checkpoints were written before a curvature could be released: their fingerprints still hold.
        del config["curvature_share"]
        curvature = {}
    return {
        "description": mechanism.description.to_dict(),
        "config": config,
        "privacy": {
            "epsilon": privacy.epsilon,
            "delta": privacy.delta,
            "neighbouring_relation": privacy.neighbouring_relation,
        },
        "noise_multiplier": mechanism.noise_multiplier,
        "discreteness": mechanism.discreteness,
        **curvature,
    }


def _seal(secret: bytes, header: dict[str, Any], phi: Array, noisy_gradient: Array) -> str:
    """Return a keyed hash of a whole file: it shows edits, though not those of somebody who makes it anew."""
    mac = hmac.new(secret, b"checkpoint" + json.dumps(header, sort_keys=True).encode(), hashlib.sha256)
    for array in (phi, noisy_gradient):
        mac.update(np.ascontiguousarray(array, dtype=np.float64).data)
    return mac.hexdigest()


def _fingerprint(secret: bytes, mechanism: Mechanism, *, records: Records) -> str:
    """Return the HMAC-SHA-256 of settings and records."""
    mac = hmac.new(secret, json.dumps(_settings(mechanism), sort_keys=True).encode(), hashlib.sha256)
    starts = np.arange(len(records.y) + 1) if records.unit_starts is None else records.unit_starts
    counts = () if records.counts is None else (records.counts,)
    for array in (records.x, records.y, starts, *counts):
        mac.update(f"{array.dtype}{array.shape}".encode())
        mac.update(np.ascontiguousarray(array).data)
    return mac.hexdigest()
