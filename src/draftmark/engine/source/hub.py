"""A Hugging Face hub id -> its local snapshot: the local cache first, then the network.

`huggingface_hub` is imported inside, because a server of a local model needs none of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from draftmark.core.errors import ModelError

# Only what we read, and only at the top: folders of a repository hold other formats.
_WANTED = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "*.safetensors",
    "model.safetensors.index.json",
)
_UNWANTED = ("*/*", "consolidated*")


def find_on_hub(name: str, *, progress: Callable[[str], None]) -> Path:
    """The snapshot's directory. Raises `ModelError` with one line; `OSError` of a full disk."""
    local = _snapshot(name, local_only=True)
    if local is not None and _is_whole(local):
        return local
    progress(f"fetching {name} from the Hugging Face hub")
    fetched = _snapshot(name, local_only=False)
    assert fetched is not None
    if not _is_whole(fetched):
        raise ModelError(f"{name} on the hub holds no config.json with *.safetensors files")
    return fetched


def _snapshot(name: str, *, local_only: bool) -> Path | None:
    """The snapshot, or None when only the local cache may be asked and has not got it."""
    from huggingface_hub import constants, errors, snapshot_download

    try:
        found = snapshot_download(
            name,
            allow_patterns=list(_WANTED),
            ignore_patterns=list(_UNWANTED),
            local_files_only=local_only,
        )
    except errors.HFValidationError as error:
        raise ModelError(f"{name} is no path that exists and no hub id") from error
    except errors.GatedRepoError as error:
        raise ModelError(
            f"{name} is gated: accept its terms on the hub, then log in with `hf auth login`"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(
            f"there is no {name} on the Hugging Face hub (or it is private: `hf auth login`)"
        ) from error
    except errors.LocalEntryNotFoundError as error:
        if local_only:
            return None
        reason = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "the hub is out of reach"
        raise ModelError(f"{name} is not in the local hub cache and {reason}") from error
    except errors.HfHubHTTPError as error:
        raise ModelError(f"the hub refused {name}: {_first_line(error)}") from error
    except OSError:
        raise  # of the disk: the caller says which
    except Exception as error:
        # Process edge: which HTTP library raises here differs between versions of the hub's client.
        raise ModelError(f"fetching {name} failed: {_first_line(error)}") from error
    return Path(found)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _is_whole(directory: Path) -> bool:
    """Has a config and every weight file that its index names (an old cache may be partial)."""
    if not (directory / "config.json").is_file():
        return False
    index = directory / "model.safetensors.index.json"
    if not index.is_file():
        return any(directory.glob("*.safetensors"))
    try:
        named = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError) as error:
        raise ModelError(f"{index} is not a weight index") from error
    return all((directory / file).is_file() for file in named)
