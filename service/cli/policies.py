"""What ``--policy`` may be: a preset's name, a JSON file, or inline JSON."""

from pathlib import Path
from typing import Any, Final

import msgspec

from contracts import PRESETS, Code, Refused, Snapshot, load_policy
from contracts.policy import Policy

MAX_POLICY_BYTES: Final = 2**20

Source = str | dict[str, Any]


def policy_source(option: str) -> Source:
    """The preset's name or the inline policy that an option means, checked; ``Refused`` says what is wrong."""
    source = _source(option)
    load_policy(source)
    return source


def choose_policy(snapshot: Snapshot, source: Source | None) -> Policy:
    """The policy asked for on the command line, else the snapshot's own, else the default."""
    return load_policy(snapshot.policy if source is None else source)


def _source(option: str) -> Source:
    if option.lstrip().startswith("{"):
        return _decode(option.encode(errors="replace"))
    path = Path(option)
    if option in PRESETS or not (path.is_file() or path.suffix == ".json" or "/" in option):
        return option
    with path.open("rb") as file:
        return _decode(file.read(MAX_POLICY_BYTES + 1))


def _decode(text: bytes) -> dict[str, Any]:
    if len(text) > MAX_POLICY_BYTES:
        raise Refused(Code.BAD_POLICY, "a policy is never that large")
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refused(Code.BAD_POLICY, "the policy is not a JSON object") from None
