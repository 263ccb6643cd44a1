"""Composition: at most so many kinds of content mutation in one run, by priority."""

from msgspec import structs

from contracts import Policy
from contracts.policy import Collapse, Compress
from pipeline.conversation import Conversation
from pipeline.stages.collapse import collapse
from pipeline.stages.compress import compress
from pipeline.stages.prune import prune


def compose(conversation: Conversation, policy: Policy) -> tuple[Policy, bool]:
    """The policy with only the mutations the cap allows, and whether one was left out; the rerank is part of prune."""
    if policy.composition is None:
        return policy, False
    wanted = [name for name in policy.composition.priority if _mutates(conversation, policy, name)]
    spare = wanted[policy.composition.max_mutations :]
    for name in spare:
        policy = _without(policy, name)
    return policy, bool(spare)


def _mutates(conversation: Conversation, policy: Policy, name: str) -> bool:
    rerank = structs.replace(policy, compress=Compress(rag=policy.compress.rag))
    own = structs.replace(policy, compress=structs.replace(policy.compress, rag=None))
    if name == "prune":
        return bool(compress(conversation, rerank).edits or prune(conversation, policy).edits)
    stage = compress if name == "compress" else collapse
    return bool(stage(conversation, own).edits)


def _without(policy: Policy, name: str) -> Policy:
    if name == "compress":
        return structs.replace(policy, compress=Compress(rag=policy.compress.rag))
    if name == "prune":
        return structs.replace(policy, prune=None, compress=structs.replace(policy.compress, rag=None))
    return structs.replace(policy, collapse=Collapse())
