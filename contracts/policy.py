"""Policy: one value describes a run; every part is typed, an unknown field is refused with the nearest right name."""

import difflib
import hashlib
import re
from functools import cache
from typing import Annotated, Any, Literal, Union, get_origin

import msgspec
from msgspec import Meta, Struct, defstruct
from msgspec.structs import fields as fields_of
from msgspec.structs import force_setattr

from contracts.codec import encode, refuse_shape
from contracts.errors import Code, Refused
from contracts.presets import CACHE_PRICES, DEFAULT_PRESET, PRESETS

Turn = Literal["message", "round", "user"]
Provider = Literal["anthropic-5m", "anthropic-1h", "openai", "gemini"]
Counting = Literal["chars/4", "estimate", "calibrated", "o200k_base", "cl100k_base"]

Whole = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Price = Annotated[float, Meta(ge=0)]


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """One part of a policy; a misspelt field is an error, never ignored."""


class Gate(Part, frozen=True):
    """Leave conversations alone unless they pass one of these sizes."""

    messages_over: Whole | None = None
    chars_over: Whole | None = None


class Budget(Part, frozen=True):
    """The hard size in tokens, the share of it from which a cut may pay, and the share that a cut goes down to."""

    max_tokens: Positive = 100_000
    high_water: Share = 0.95
    low_water: Share = 0.2


class Keep(Part, frozen=True):
    """What no strategy may remove."""

    system: bool = True
    first_user: bool = False
    last: Positive = 1
    tools: tuple[str, ...] = ()
    positions: tuple[int, ...] = ()


class Mask(Part, frozen=True):
    """Lazy masking of old tool outputs: zones and thresholds in tokens."""

    protect_tokens: Whole = 40_000
    minimum_tokens: Whole = 20_000
    active_user_turns: Whole = 2
    protected_tools: tuple[str, ...] = ("skill",)


class Rag(Part, frozen=True):
    """Rerank of retrieved chunks by similarity to the question."""

    threshold: Share = 0.1
    fence: str = "context"


class Compress(Part, frozen=True):
    """Make tool results and retrieved context smaller in place."""

    max_tool_result_tokens: Whole | None = None
    shape: Literal["head", "head_tail", "condense"] = "head"
    mask: Mask | None = None
    rag: Rag | None = None


class Collapse(Part, frozen=True):
    """Replace old tool rounds by a short text; off when ``after_turns`` is unset."""

    after_turns: Whole | None = None
    into: Literal["stub", "assistant", "user"] = "stub"
    multi_tool: bool = True


class Pruning(Part, frozen=True, tag_field="strategy"):
    """The settings of a strategy, under the name that a policy gives it; those of a new one stand in its own file."""


class SlidingWindow(Pruning, frozen=True, tag="sliding_window"):
    """Keep the last ``max_turns``; a pair at the boundary is extended to, or dropped whole."""

    max_turns: Whole
    boundary: Literal["extend", "drop"] = "extend"


class Summarize(Pruning, frozen=True, tag="summarize"):
    """Replace what is older than the window by one placeholder."""

    max_turns: Whole


class Importance(Pruning, frozen=True, tag="importance"):
    """Drop the lowest-scoring turns until ``max_turns`` remain."""

    max_turns: Whole


class TokenBudget(Pruning, frozen=True, tag="token_budget"):
    """Drop the oldest units until the conversation fits."""

    max_tokens: Positive


class MiddleOut(Pruning, frozen=True, tag="middle_out"):
    """Drop middle turns that carry no tool reference."""

    last_turns: Whole = 8
    keep_middle_pairs: bool = True


class ToolRole(Part, frozen=True):
    """Which argument of a tool names what it reads or writes."""

    argument: str
    access: Literal["read", "write"] = "read"


class Steady(Pruning, frozen=True, tag="steady"):
    """Cut rarely and deep, cheapest loss first, at points that later messages do not move."""

    keep_rounds: Positive = 2
    evidence_share: Share = 0.2
    notice_share: Share = 0.15
    tool_roles: dict[str, ToolRole] = {}


class Validate(Part, frozen=True):
    """What to do with an array that already breaks the provider's rules."""

    input: Literal["repair", "reject", "trust"] = "repair"


class Composition(Part, frozen=True):
    """At most this many kinds of content mutation in one run, the first of ``priority`` first."""

    max_mutations: Positive = 1
    priority: tuple[Literal["prune", "compress", "collapse"], ...] = ("prune", "compress", "collapse")


class CachePrices(Part, frozen=True):
    """Prices of cached reads and writes relative to plain input, and over how many calls a cut must pay."""

    provider: Provider = "anthropic-5m"
    read: Price | None = None
    write: Price | None = None
    horizon_calls: Positive = 20

    @property
    def read_price(self) -> float:
        """What a cached token costs: the policy's own figure, else the provider's."""
        return CACHE_PRICES[self.provider][0] if self.read is None else self.read

    @property
    def write_price(self) -> float:
        """What a token costs that is written to the cache."""
        return CACHE_PRICES[self.provider][1] if self.write is None else self.write


class Policy(Part, frozen=True):
    """Everything a run needs to know besides its snapshot."""

    name: str = "inline"
    gate: Gate | None = None
    budget: Budget | None = None
    keep: Keep = Keep()
    count: Counting = "estimate"
    turn: Turn = "message"
    compress: Compress = Compress()
    collapse: Collapse = Collapse()
    prune: Any = None  # a Pruning: which ones there are is known only when all are imported
    validate: Validate = Validate()
    thinking: Literal["strip", "keep", "refuse"] = "strip"
    composition: Composition | None = None
    economics: CachePrices = CachePrices()

    def __post_init__(self) -> None:
        """A policy that another process wrote brings its strategy as plain values."""
        if isinstance(self.prune, dict):
            force_setattr(self, "prune", msgspec.convert(self.prune, _strategy(self.prune)))

    @property
    def hash(self) -> str:
        """The first 16 hex digits of the sha256 of the full policy text."""
        return hashlib.sha256(encode(self)).hexdigest()[:16]


def known_strategies() -> dict[str, type[Pruning]]:
    """The settings of every strategy that has been imported, by its name."""
    return {str(kind.__struct_config__.tag): kind for kind in Pruning.__subclasses__()}


def written_policy() -> type[Struct]:
    """A policy as it is written, with every known strategy: what schemas show and inline policies are held to."""
    return _written(tuple(known_strategies().values()))


@cache
def _written(kinds: tuple[type[Pruning], ...]) -> type[Struct]:
    types = {"prune": Union[(*kinds, None)]}
    fields = [(field.name, types.get(field.name, field.type), field.default) for field in fields_of(Policy)]
    return defstruct(Policy.__name__, fields, bases=(Part,), frozen=True, namespace={"__doc__": Policy.__doc__})


def load_policy(source: str | dict[str, Any]) -> Policy:
    """The policy that a preset's name or an inline object describes; ``Refused`` says what to write instead."""
    if isinstance(source, str):
        return _build(_preset(source or DEFAULT_PRESET) | {"name": source or DEFAULT_PRESET})
    parts = dict(source)
    base = parts.pop("preset", None)
    if base is not None and not isinstance(base, str):
        raise Refused(Code.BAD_POLICY, "preset must be a string")
    merged: dict[str, Any] = _preset(base) | {"name": base} if base else {}
    for name, part in parts.items():
        merged[name] = _merge(merged.get(name), part)
    return _build(merged)


def _preset(name: str) -> dict[str, Any]:
    if name not in PRESETS:
        raise Refused(Code.UNKNOWN_POLICY, f"no preset {_quote(name)}{_nearest(name, PRESETS)}")
    return dict(PRESETS[name])


def _merge(base: Any, part: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(part, dict):
        return part
    if "strategy" in part and part["strategy"] != base.get("strategy"):
        return part
    return base | {name: _merge(base.get(name), value) for name, value in part.items()}


def _build(parts: dict[str, Any]) -> Policy:
    try:
        _check_names(parts, Policy, "policy")
        written = msgspec.convert(parts, written_policy())
        return Policy(*(getattr(written, field.name) for field in fields_of(Policy)))
    except RecursionError:
        raise Refused(Code.BAD_POLICY, "nested too deep") from None
    except msgspec.ValidationError as error:
        raise Refused(Code.BAD_POLICY, refuse_shape(str(error)).detail) from None


def _check_names(parts: dict[str, Any], kind: type[Struct], where: str) -> None:
    """Refuse unknown fields by their nearest right name before msgspec sees them: its own message quotes input."""
    fields = {field.name: field.type for field in fields_of(kind)}
    tag_field = kind.__struct_config__.tag_field
    for name, value in parts.items():
        if name == tag_field:
            continue
        if name not in fields:
            raise Refused(Code.BAD_POLICY, f"unknown field {_quote(name)} in {where}{_nearest(name, fields)}")
        if isinstance(value, dict):
            _check_part(name, value, fields[name])


def _check_part(name: str, value: dict[str, Any], annotation: Any) -> None:
    if name == "prune":
        _check_names(value, _strategy(value), "prune")
        return
    if get_origin(annotation) is dict:
        for item in value.values():
            if isinstance(item, dict):
                _check_part(name, item, annotation.__args__[1])
        return
    for kind in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(kind, type) and issubclass(kind, Struct):
            _check_names(value, kind, name)


def _strategy(prune: dict[str, Any]) -> type[Struct]:
    name = prune.get("strategy")
    if not isinstance(name, str):
        raise Refused(Code.BAD_POLICY, f"prune needs a strategy: {', '.join(sorted(known_strategies()))}")
    if name not in known_strategies():
        raise Refused(Code.BAD_POLICY, f"unknown strategy {_quote(name)}{_nearest(name, known_strategies())}")
    return known_strategies()[name]


def _nearest(name: Any, known: Any) -> str:
    close = difflib.get_close_matches(name[:64], list(known), n=1) if isinstance(name, str) else []
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(sorted(known))}"


def _quote(name: Any) -> str:
    # A policy may come inside a snapshot: repeat only what can be a name.
    return repr(name) if isinstance(name, str) and re.fullmatch(r"[\w-]{1,40}", name) else "(unprintable)"
