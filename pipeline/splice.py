"""Splice: change a few places of a raw JSON item and leave every other byte as it came."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from pipeline.view import Path

DELETE: Final = object()
_NOTHING: Final = object()

Change = tuple[Path, Any]


class Prepend(Struct, frozen=True):
    """A change that puts items in front of the array at its path."""

    items: list[Any]


class Append(Struct, frozen=True):
    """A change that puts items behind the array at its path."""

    items: list[Any]


_object = msgspec.json.Decoder(dict[str, Raw])
_array = msgspec.json.Decoder(list[Raw])
_encoder = msgspec.json.Encoder()


def splice(item: Raw, changes: Iterable[Change]) -> Raw:
    """``item`` with the value at each path replaced, or removed where the value is ``DELETE``."""
    wanted = list(changes)
    return Raw(_apply(item, wanted)) if wanted else item


def _apply(item: Raw, changes: list[Change]) -> bytes:
    here = next((value for path, value in changes if not path), _NOTHING)
    if isinstance(here, Prepend | Append):
        rest = [(path, value) for path, value in changes if path]
        items = _array.decode(_apply(item, rest) if rest else item)
        return _encoder.encode([*here.items, *items] if isinstance(here, Prepend) else [*items, *here.items])
    if here is not _NOTHING:
        return bytes(here) if isinstance(here, Raw) else _encoder.encode(here)
    below: dict[str | int, list[Change]] = {}
    for path, value in changes:
        below.setdefault(path[0], []).append((path[1:], value))
    # The first step tells what the item is, without a look at its bytes.
    if isinstance(changes[0][0][0], int):
        return _encoder.encode(_array_with(_array.decode(item), below))
    return _encoder.encode(_object_with(_object.decode(item), below))


def _array_with(items: list[Raw], below: dict[Any, list[Change]]) -> list[Raw]:
    return [
        _child(item, below[i]) if i in below else item for i, item in enumerate(items) if not _removed(below.get(i))
    ]


def _object_with(fields: dict[str, Raw], below: dict[Any, list[Change]]) -> dict[str, Raw]:
    for key, changes in below.items():
        if _removed(changes):
            fields.pop(key, None)
        else:
            fields[key] = _child(fields.get(key, Raw(b"{}")), changes)
    return fields


def _child(item: Raw, changes: list[Change]) -> Raw:
    return Raw(_apply(item, changes))


def _removed(changes: list[Change] | None) -> bool:
    return bool(changes) and any(not path and value is DELETE for path, value in changes or ())
