"""What a run sends: how many requests of which size, how fast, from which prompts, sampled how."""

from __future__ import annotations

import difflib
import hashlib
import math
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path

import msgspec
import yaml

from draftmark.bench.strict_yaml import read_yaml
from draftmark.core.errors import ConfigError


class Mode(StrEnum):
    """How requests start. Closed: as many in flight as `concurrency`. The others are open: at times
    that do not depend on the server."""

    CLOSED = "closed"
    POISSON = "poisson"
    GAMMA = "gamma"
    TRACE = "trace"
    BURST = "burst"


class Endpoint(StrEnum):
    COMPLETIONS_IDS = "completions_ids"
    COMPLETIONS = "completions"
    CHAT = "chat"


class PromptSource(StrEnum):
    LEDGER = "ledger"
    RANDOM_IDS = "random_ids"
    FILE = "file"


class Sampling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sent with every request, each field explicitly: a server's own defaults must not decide."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None


class Objectives(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request is good when it is within each of these that is given, in milliseconds."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of run. `isl` and `osl` are tokens of a prompt and of an answer; prompts from a file
    are as long as they are."""

    name: str
    mode: Mode = Mode.CLOSED
    concurrency: int = 1
    # Requests a second, of the open modes but traces.
    rate: float | None = None
    # Shape of the gamma distribution of gaps: 1 is Poisson, below is burstier.
    burstiness: float = 1.0
    n_requests: int
    isl: int
    osl: int
    ignore_eos: bool = True
    sampling: Sampling = Sampling()
    endpoint: Endpoint = Endpoint.COMPLETIONS_IDS
    source: PromptSource = PromptSource.RANDOM_IDS
    # A file of prompts, of the source `file`: a path below the data folder.
    file: str | None = None
    seed: int = 1
    warm_runs: int = 1
    runs: int = 1
    timeout_s: float = 600.0
    slo: Objectives = Objectives()


class ProfileFile(msgspec.Struct, frozen=True, kw_only=True):
    """A profile, and the file it was read from: absolute path and SHA-256 of its bytes."""

    profile: Profile
    path: str
    sha256: str


def shipped_profiles() -> dict[str, Path]:
    """The profiles that come with the package, by name."""
    return {path.stem: path for path in sorted((Path(__file__).parent / "profiles").glob("*.yaml"))}


def load_profile(name_or_path: str) -> ProfileFile:
    """A shipped profile by its name, or the file at a path. Raises `ConfigError`."""
    shipped = shipped_profiles()
    path = shipped.get(name_or_path, Path(name_or_path))
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        near = did_you_mean(name_or_path, shipped)
        raise ConfigError(
            f"profile {name_or_path}: no file, and none of the shipped ones "
            f"({', '.join(shipped)}){near}",
            param="profile",
        ) from error
    except OSError as error:
        raise ConfigError(
            f"profile {path}: cannot be read ({error.strerror})", param="profile"
        ) from error
    profile = read_profile(content, where=str(path))
    sha256 = hashlib.sha256(content).hexdigest()
    return ProfileFile(profile=profile, path=str(path.resolve()), sha256=sha256)


def read_profile(content: bytes, *, where: str) -> Profile:
    """A profile from YAML; `where` begins every message. Keys that are unknown or come twice,
    values of the wrong type and combinations that mean nothing raise `ConfigError`."""
    try:
        tree = read_yaml(content)
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: not valid YAML ({error})", param="profile") from error
    if not isinstance(tree, dict):
        raise ConfigError(f"{where}: a profile holds keys and values", param="profile")
    _check_keys(tree, Profile, where=f"{where}: ")
    try:
        profile = msgspec.convert(tree, Profile)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}", param="profile") from error
    check_profile(profile, where=where)
    return profile


def check_profile(profile: Profile, *, where: str) -> None:
    """Raises `ConfigError` for values out of range and combinations that mean nothing."""
    faults = [*_range_faults(profile), *_combination_faults(profile)]
    if faults:
        raise ConfigError(f"{where}: {'; '.join(faults)}", param="profile")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean X?)`, or nothing when no known word is near."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""


def _range_faults(profile: Profile) -> Iterator[str]:
    for name in ("concurrency", "n_requests", "isl", "osl", "runs"):
        if getattr(profile, name) < 1:
            yield f"{name} must be at least 1"
    if profile.warm_runs < 0:
        yield "warm_runs must be at least 0"
    if profile.sampling.top_k < 0:
        yield "sampling.top_k must be at least 0 (0: off)"
    for name in ("rate", "burstiness", "timeout_s"):
        value = getattr(profile, name)
        if value is not None and not (0 < value < math.inf):
            yield f"{name} must be a number above 0"
    for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
        limit = getattr(profile.slo, name)
        if limit is not None and not (0 < limit < math.inf):
            yield f"slo.{name} must be a number above 0"


def _combination_faults(profile: Profile) -> Iterator[str]:
    needs_rate = profile.mode in (Mode.POISSON, Mode.GAMMA)
    if needs_rate and profile.rate is None:
        yield f"mode {profile.mode} needs a rate (requests a second)"
    if profile.mode in (Mode.CLOSED, Mode.TRACE) and profile.rate is not None:
        yield f"mode {profile.mode} has no rate: leave it out"
    if profile.mode is not Mode.GAMMA and profile.burstiness != 1.0:
        yield "burstiness belongs to mode gamma"
    if (profile.source is PromptSource.FILE) != (profile.file is not None):
        yield "source file and the key `file` belong together"
    if profile.mode is Mode.CLOSED and profile.n_requests < profile.concurrency:
        yield (
            f"{profile.n_requests} requests never have {profile.concurrency} in flight: "
            "raise n_requests or lower concurrency"
        )


def _check_keys(tree: dict[object, object], kind: type[msgspec.Struct], *, where: str) -> None:
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in tree.items():
        if key not in fields:
            near = did_you_mean(str(key), fields)
            raise ConfigError(f"{where}unknown key {key}{near}", param="profile")
        inner = fields[str(key)]
        if (
            isinstance(inner, type)
            and issubclass(inner, msgspec.Struct)
            and isinstance(value, dict)
        ):
            _check_keys(value, inner, where=f"{where}{key}: ")
