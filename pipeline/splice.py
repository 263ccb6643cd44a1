"""Splice: change a few places of a raw JSON item and leave every other byte as it came."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from pipeline.view import Path

DELETE: Final = object()
_NOTHING: Final = object()
_EMPTY: Final = Raw(b"{}")

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
    return Raw(_encoder.encode(_changed(item, wanted))) if wanted else item


def _changed(item: Raw, changes: list[Change]) -> Any:
    """The item taken apart as far as the changes go; what they leave alone stays raw."""
    here = next((value for path, value in changes if not path), _NOTHING)
    if isinstance(here, Prepend | Append):
        rest = [(path, value) for path, value in changes if path]
        items = _changed(item, rest) if rest else _array.decode(item)
        return [*here.items, *items] if isinstance(here, Prepend) else [*items, *here.items]
    if here is not _NOTHING:
        return here
    below: dict[Any, list[Change]] = {}
    for path, value in changes:
        below.setdefault(path[0], []).append((path[1:], value))
    # The first step tells what the item is, without a look at its bytes.
    if isinstance(changes[0][0][0], int):
        return _array_with(_array.decode(item), below)
    return _object_with(_object.decode(item), below)


def _array_with(items: list[Raw], below: dict[Any, list[Change]]) -> list[Any]:
    changed = ((_changed(item, below[i]) if i in below else item) for i, item in enumerate(items))
    return [item for item in changed if item is not DELETE]


def _object_with(fields: dict[str, Any], below: dict[Any, list[Change]]) -> dict[str, Any]:
    for key, changes in below.items():
        value = _changed(fields.get(key, _EMPTY), changes)
        if value is DELETE:
            fields.pop(key, None)
        else:
            fields[key] = value
    return fields
