"""AsyncAPI: the streams of a lane and what their entries hold, from the contracts themselves."""

from typing import Any, Final

import msgspec

from contracts.schema import CONTRACTS, contract_types
from service.keys import Keys

ABOUT_FIELDS: Final = (
    "One entry field, `__data__`, holds the payload as plain JSON; a snapshot may be one zstd frame of it beside "
    "`enc=zstd`. A large result may stand in the key that the field `blob` names, beside its `snapshot_id`."
)


def describe_lane(keys: Keys, version: str) -> dict[str, Any]:
    """The AsyncAPI 3.0 document of one lane."""
    schemas, components = msgspec.json.schema_components(
        contract_types(), schema_hook=_anything, ref_template="#/components/schemas/{name}"
    )
    messages = {name: {"payload": schema} for name, schema in zip(CONTRACTS, schemas, strict=True)}
    channels = {
        "snapshots": _channel(keys.snapshots, "snapshot", "Conversations to prune, served first."),
        "batch": _channel(keys.batch, "snapshot", "Stored conversations, served after live traffic."),
        "pruned": _channel(keys.pruned, "pruned", "One result per snapshot, unless it names an inbox."),
        "inbox": _channel(keys.results("<name>"), "pruned", "Results of the snapshots that name this inbox."),
        "metrics": _channel(keys.metrics, "metrics", "One row per settled entry, whatever its outcome."),
        "dead": _channel(keys.dead, "dead-letter", "Refused entries: their own fields, and why."),
    }
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Secateur", "version": version, "description": ABOUT_FIELDS},
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": {
            name: {"action": "receive" if name in ("snapshots", "batch") else "send", "channel": _ref("channels", name)}
            for name in channels
        },
        "components": {"messages": messages, "schemas": components},
    }


def _channel(stream: str, message: str, description: str) -> dict[str, Any]:
    return {
        # AsyncAPI would take the braces of a lane for a parameter, so the key stands in a field of our own.
        "address": None,
        "title": stream,
        "description": description,
        "messages": {message: _ref("components/messages", message)},
        "x-redis-stream": stream,
    }


def _ref(where: str, name: str) -> dict[str, str]:
    return {"$ref": f"#/{where}/{name}"}


def _anything(_: type) -> dict[str, Any]:
    return {}
