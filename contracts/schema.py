"""JSON Schemas of everything that crosses a process boundary."""

from typing import Any, Final

import msgspec

from contracts.metrics import DeadLetter, Metrics
from contracts.policy import Policy
from contracts.result import Pruned
from contracts.snapshot import Snapshot

CONTRACTS: Final[dict[str, type[msgspec.Struct]]] = {
    "snapshot": Snapshot,
    "pruned": Pruned,
    "metrics": Metrics,
    "dead-letter": DeadLetter,
    "policy": Policy,
}


def json_schemas() -> dict[str, dict[str, Any]]:
    """One self-contained JSON Schema per contract, by name."""
    return {name: msgspec.json.schema(kind, schema_hook=_raw) for name, kind in CONTRACTS.items()}


def _raw(kind: type) -> dict[str, Any]:
    return {}
