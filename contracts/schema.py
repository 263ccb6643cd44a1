"""JSON Schemas of everything that crosses a process boundary."""

from typing import Any, Final

import msgspec

from contracts.metrics import DeadLetter, Metrics
from contracts.policy import written_policy
from contracts.result import Pruned
from contracts.snapshot import Snapshot

CONTRACTS: Final = ("snapshot", "pruned", "metrics", "dead-letter", "policy")


def contract_types() -> list[type[msgspec.Struct]]:
    """What each contract is written as, in the order of their names."""
    return [Snapshot, Pruned, Metrics, DeadLetter, written_policy()]


def json_schemas() -> dict[str, dict[str, Any]]:
    """One self-contained JSON Schema per contract, by name."""
    types = zip(CONTRACTS, contract_types(), strict=True)
    return {name: msgspec.json.schema(kind, schema_hook=_raw) for name, kind in types}


def _raw(kind: type) -> dict[str, Any]:
    return {}
