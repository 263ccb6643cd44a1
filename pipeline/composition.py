"""Composition: at most so many kinds of content mutation in one run, by priority."""

from msgspec import structs

from contracts import Policy
from contracts.policy import Collapse, Compress


def compose(policy: Policy) -> tuple[Policy, bool]:
    """The policy with only the mutations the cap allows, and whether one was left out; the rerank is part of prune."""
    if policy.composition is None:
        return policy, False
    # What the policy asks for counts, not what it would change: else a second run would go on where the first stopped.
    wanted = [name for name in policy.composition.priority if _asks_for(policy, name)]
    spare = wanted[policy.composition.max_mutations :]
    for name in spare:
        policy = _without(policy, name)
    return policy, bool(spare)


def _asks_for(policy: Policy, name: str) -> bool:
    compress = policy.compress
    if name == "prune":
        return policy.prune is not None or compress.rag is not None
    if name == "compress":
        return compress.max_tool_result_tokens is not None or compress.mask is not None
    return policy.collapse.after_turns is not None


def _without(policy: Policy, name: str) -> Policy:
    if name == "compress":
        return structs.replace(policy, compress=Compress(rag=policy.compress.rag))
    if name == "prune":
        return structs.replace(policy, prune=None, compress=structs.replace(policy.compress, rag=None))
    return structs.replace(policy, collapse=Collapse())
