"""Seed 003, statement by statement: gate, middle-out trim, rerank of retrieved chunks, composition cap, summary.

Exception to the seed: dropping an early turn keeps the first user message where the provider needs it (promise 1).
"""

from typing import Any

from tests.pipeline.arrays import assistant, calls, plain, results, run, user


def talk(count: int) -> list[dict[str, Any]]:
    return [(user if i % 2 == 0 else assistant)(f"turn {i}") for i in range(count)]


def test_below_both_thresholds_the_request_passes_untouched() -> None:
    pruned = run(talk(12), "tessera")

    assert (pruned.status, pruned.reason) == ("unchanged", ["below_gate"])


def test_more_than_twelve_messages_open_the_gate() -> None:
    pruned = run(talk(13), "tessera")

    assert pruned.status == "pruned"
    # Turn 5 is the agent's, and a user must speak first: the first prompt stays in front.
    assert plain(pruned) == [talk(13)[0], *talk(13)[-8:]]


def test_more_than_32768_characters_open_the_gate() -> None:
    messages = [user("x" * 40_000), *talk(11)]

    assert run(messages, "tessera").status == "pruned"


def test_the_gate_counts_characters_not_bytes() -> None:
    assert run([user("語" * 30_000)], "tessera").reason == ["below_gate"]


def test_the_last_eight_turns_and_the_system_message_stay() -> None:
    messages = [{"role": "system", "content": "rules"}, *talk(20)]

    assert plain(run(messages, "tessera", "openai-chat")) == [messages[0], *messages[-8:]]


def test_middle_pairs_are_kept_whole() -> None:
    messages = [user("go"), calls("a"), results("a"), *talk(20)]

    kept = plain(run(messages, "tessera"))

    assert messages[1] in kept
    assert messages[2] in kept


def test_middle_pairs_go_whole_when_the_policy_says_so() -> None:
    messages = [user("go"), calls("a"), results("a"), *talk(20)]

    kept = plain(run(messages, {"preset": "tessera", "prune": {"keep_middle_pairs": False}}))

    assert messages[1] not in kept
    assert messages[2] not in kept


def test_a_pair_anchored_in_the_window_is_kept() -> None:
    messages = [*talk(16), calls("a"), results("a"), user("next")]

    kept = plain(run(messages, "tessera"))

    assert messages[-3:] == kept[-3:]


def test_images_are_skipped() -> None:
    image = {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": "aGk="}}]}
    messages = [user("go"), image, *talk(20)]

    assert image in plain(run(messages, "tessera"))


CHUNKS = (
    "<context>\n[1] Bread needs flour, water, salt and yeast.\n"
    "[2] The token limit of the parser is set in parser.toml under limits.\n"
    "[3] Cats sleep sixteen hours a day.\n</context>\n"
)
QUESTION = "Where is the token limit of the parser set?"
RERANK = {"count": "chars/4", "compress": {"rag": {"threshold": 0.2}}}


def test_chunks_below_the_threshold_are_dropped() -> None:
    pruned = run([user(CHUNKS + QUESTION)], RERANK)

    text = plain(pruned)[0]["content"]
    assert "parser.toml" in text
    assert "Bread" not in text
    assert (pruned.counts.rag_kept, pruned.counts.rag_dropped) == (1, 2)
    assert pruned.summary == "turns_removed=0,rag_kept=1"


def test_the_best_chunk_comes_first() -> None:
    chunks = (
        "<context>\n[1] The parser has a limit.\n[2] The token limit of the parser is set in parser.toml.\n"
        "[3] Cats sleep.\n</context>\n"
    )

    text = plain(run([user(chunks + QUESTION)], RERANK))[0]["content"]

    assert text.index("parser.toml") < text.index("has a limit")


def test_an_ambiguous_structure_is_left_alone_and_said_so() -> None:
    pruned = run([user(f"<context>one long passage without any delimiter</context>\n{QUESTION}")], RERANK)

    assert (pruned.edits, pruned.reason) == ([], ["rag_ambiguous"])


def test_one_content_mutation_per_request_and_prune_wins() -> None:
    policy = {"preset": "tessera", "compress": {"max_tool_result_tokens": 5}}
    messages = [user("go"), calls("a"), results("a", text="x" * 400), *talk(20)]

    pruned = run(messages, policy)

    assert {edit.stage for edit in pruned.edits} == {"prune"}
    assert "mutation_cap" in pruned.reason


def test_the_summary_counts_the_turns_removed() -> None:
    pruned = run([{"role": "system", "content": "rules"}, *talk(20)], "tessera", "openai-chat")

    assert pruned.summary == "turns_removed=12,rag_kept=0"
