"""The simulated fleet: the same for the same seed, valid in every wire format at every turn."""

import itertools
import json
from typing import Any

import pytest

from contracts import Snapshot, decode_snapshot, encode
from pipeline import validate_message_sequence
from service.fleet import FORMATS, Agent, FleetFormat, start_agent

AGENTS = 12


def finished(seed: int, number: int) -> Agent:
    agent = start_agent(seed, number)
    while agent.take_turn():
        pass
    return agent


def read_messages(agent: Agent) -> list[dict[str, Any]]:
    return [json.loads(bytes(message)) for message in agent.messages]


def widths(agent: Agent) -> list[int]:
    """How many calls each assistant message makes."""
    if agent.format == "openai-chat":
        return [len(message.get("tool_calls", ())) for message in read_messages(agent)]
    contents = [message["content"] for message in read_messages(agent)]
    return [sum(part["type"] == "tool_use" for part in parts) for parts in contents if isinstance(parts, list)]


def test_the_same_seed_gives_the_same_conversations() -> None:
    first, second = ([finished(7, number) for number in range(4)] for _ in range(2))

    assert [agent.messages for agent in first] == [agent.messages for agent in second]
    assert [agent.conversation_id for agent in first] == [agent.conversation_id for agent in second]


def test_another_seed_or_number_gives_another_conversation() -> None:
    conversations = [finished(seed, number).messages for seed in (1, 2) for number in (0, 2)]

    assert all(one != other for one, other in itertools.combinations(conversations, 2))


def test_a_fleet_speaks_every_wire_format() -> None:
    assert {start_agent(1, number).format for number in range(AGENTS)} == set(FORMATS)


@pytest.mark.parametrize("number", range(AGENTS))
def test_every_turn_leaves_a_valid_conversation(number: int) -> None:
    agent = start_agent(1, number)

    while agent.take_turn():
        assert validate_message_sequence(agent.messages, agent.format) == []


@pytest.mark.parametrize("number", range(AGENTS))
def test_the_wire_format_of_a_conversation_is_recognised(number: int) -> None:
    assert validate_message_sequence(finished(1, number).messages) == []


@pytest.mark.parametrize("number", range(2))
def test_a_turn_only_adds_messages_and_counts_itself(number: int) -> None:
    agent = start_agent(1, number)
    before: list[Any] = []

    while agent.take_turn():
        assert agent.messages[: len(before)] == before
        assert len(agent.messages) > len(before)
        before = agent.messages
    assert agent.sequence >= 20


@pytest.mark.parametrize("wire", FORMATS)
def test_agents_make_parallel_calls_and_get_large_results(wire: FleetFormat) -> None:
    agents = [agent for agent in (finished(1, number) for number in range(AGENTS)) if agent.format == wire]

    assert max(width for agent in agents for width in widths(agent)) >= 3
    assert max(len(bytes(message)) for agent in agents for message in agent.messages) > 5_000


def test_a_conversation_survives_the_snapshot_codec() -> None:
    agent = finished(1, 0)
    snapshot = decode_snapshot(encode(Snapshot(agent.conversation_id, agent.messages, format=agent.format)))

    assert [bytes(message) for message in snapshot.messages] == [bytes(message) for message in agent.messages]
