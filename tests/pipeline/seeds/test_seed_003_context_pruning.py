"""Seed 003 in its own order: gate, middle-out trim, rerank of retrieved chunks, composition cap, summary.

Exceptions to the seed: dropping an early turn keeps the first user message where the provider needs it (promise 1);
chunks that are all relevant keep their order, for an edit that does not shrink is not made (promise 5). The log line
`context_pruner_applied` is the worker's: tests/service has it. Routing and structured output are not ours.
"""

from typing import Any

import pytest

from contracts import PRESETS, Pruned, raw
from pipeline import count_after, validate_message_sequence
from tests.pipeline.arrays import assistant, calls, chat_calls, chat_result, plain, results, run, user

SYSTEM = {"role": "system", "content": "rules"}


def talk(count: int) -> list[dict[str, Any]]:
    return [(user if i % 2 == 0 else assistant)(f"turn {i}") for i in range(count)]


def test_the_middle_is_dropped_and_the_system_prompt_and_the_last_turns_stay() -> None:
    """Opening: "drop the middle of long conversation histories"."""
    messages = [SYSTEM, *talk(20)]

    assert plain(run(messages, "tessera", "openai-chat")) == [SYSTEM, *messages[-8:]]


def test_compress_is_short_circuited_when_prune_is_asked_for() -> None:
    """Opening: "M3 compress [...] short-circuited for the same request"."""
    policy = {"preset": "tessera", "compress": {"max_tool_result_tokens": 5}}

    result = run([user("go"), calls("a"), results("a", text="x" * 400), *talk(20)], policy)

    assert {edit.stage for edit in result.edits} == {"prune"}
    assert "mutation_cap" in result.reason


@pytest.mark.parametrize(("count", "is_below"), [(12, True), (13, False)])
def test_more_than_twelve_messages_open_the_gate(count: int, is_below: bool) -> None:
    """Trigger thresholds: "messages.length > 12"."""
    assert ("below_gate" in run(talk(count), "tessera").reason) == is_below


@pytest.mark.parametrize(("chars", "is_below"), [(32_768, True), (32_769, False)])
def test_more_than_32768_characters_open_the_gate(chars: int, is_below: bool) -> None:
    """Trigger thresholds: "body_chars > 32_768"; one filter is enough."""
    frame = len(bytes(raw(user(""))))

    assert ("below_gate" in run([user("x" * (chars - frame))], "tessera").reason) == is_below


def test_the_gate_counts_characters_not_bytes() -> None:
    """Trigger thresholds: "body_chars"."""
    assert run([user("語" * 30_000)], "tessera").reason == ["below_gate"]


def test_below_both_thresholds_the_request_passes_untouched() -> None:
    """Trigger thresholds: "Short conversations pass through untouched."."""
    result = run(talk(12), "tessera")

    assert (result.status, plain(result)) == ("unchanged", talk(12))


def test_the_first_prompt_stays_in_front_where_a_user_must_speak_first() -> None:
    """Exception (promise 1): turn 5, the first of the last eight, is the assistant's."""
    assert plain(run(talk(13), "tessera")) == [talk(13)[0], *talk(13)[-8:]]


def test_the_number_of_last_turns_is_tunable() -> None:
    """Conversation trim: "the last 8 conversation turns (sponsor-tunable)"."""
    policy = {"preset": "tessera", "prune": {"last_turns": 3}}

    assert PRESETS["tessera"]["prune"]["last_turns"] == 8
    assert plain(run([SYSTEM, *talk(20)], policy, "openai-chat")) == [SYSTEM, *talk(20)[-3:]]


def test_a_pair_anchored_in_the_window_is_kept() -> None:
    """Conversation trim: "any tool_use / tool_result pair whose tool_use anchor is within the kept window"."""
    messages = [*talk(16), calls("a"), results("a"), user("next")]

    assert plain(run(messages, "tessera"))[-3:] == messages[-3:]


def test_middle_turns_without_a_tool_reference_are_dropped_and_pairs_kept_whole() -> None:
    """Conversation trim: "Drops: middle conversation turns that don't carry a tool reference."."""
    messages = [user("go"), calls("a"), results("a"), *talk(20)]

    assert plain(run(messages, "tessera")) == [*messages[:3], *talk(20)[-8:]]


def test_middle_pairs_go_whole_when_the_policy_says_so() -> None:
    """Conversation trim: "either keeps both or drops both"."""
    messages = [user("go"), calls("a"), results("a"), *talk(20)]

    kept = plain(run(messages, {"preset": "tessera", "prune": {"keep_middle_pairs": False}}))

    assert messages[1] not in kept
    assert messages[2] not in kept


@pytest.mark.parametrize("keep_pairs", [True, False])
@pytest.mark.parametrize("last", range(12))
def test_no_window_leaves_a_dangling_reference(last: int, keep_pairs: bool) -> None:
    """Conversation trim: "never one without the other", wherever the window begins."""
    rounds = [m for i in "abcde" for m in (calls(i), results(i), assistant("so"), user("and"))]
    policy = {"preset": "tessera", "prune": {"last_turns": last, "keep_middle_pairs": keep_pairs}}

    result = run([user("go"), *rounds], policy)

    assert isinstance(result.messages, list)
    assert validate_message_sequence(result.messages, "anthropic") == []


@pytest.mark.parametrize("format_name", ["anthropic", "openai-chat"])
def test_a_reference_that_came_dangling_does_not_leave(format_name: str) -> None:
    """Conversation trim: "the upstream would 400 the request"; "the test suite covers the dangling-reference case"."""
    lost = results("gone") if format_name == "anthropic" else chat_result("gone")
    messages = [*talk(16), lost, *talk(9)[1:]]

    result = run(messages, "tessera", format_name)

    assert lost not in plain(result)
    assert isinstance(result.messages, list)
    assert validate_message_sequence(result.messages, format_name) == []


CHUNKS = [
    "Bread needs flour, water, salt and yeast.",
    "The token limit of the parser is set in parser.toml under limits.",
    "Cats sleep sixteen hours a day.",
]
QUESTION = "Where is the token limit of the parser set?"
RERANK = {"count": "chars/4", "compress": {"rag": {"threshold": 0.2}}}

DELIMITED = {
    "numbered": "".join(f"[{i}] {chunk}\n" for i, chunk in enumerate(CHUNKS, 1)),
    "rules": "---\n".join(f"{chunk}\n" for chunk in CHUNKS),
    "documents": "".join(f'<document id="{i}">\n{chunk}\n</document>\n' for i, chunk in enumerate(CHUNKS)),
    "chunks": "".join(f"<chunk>{chunk}</chunk>\n" for chunk in CHUNKS),
    "headings": "".join(f"Document {i}\n{chunk}\n" for i, chunk in enumerate(CHUNKS, 1)),
}


def fenced(body: str) -> str:
    return f"<context>\n{body}</context>\n{QUESTION}"


def rag(result: Pruned) -> tuple[int, int]:
    return result.counts.rag_kept, result.counts.rag_dropped


@pytest.mark.parametrize("body", DELIMITED.values(), ids=DELIMITED)
def test_chunks_below_the_threshold_are_dropped_whatever_tells_them_apart(body: str) -> None:
    """RAG: "a tagged <context> XML-fence block"; "Drops chunks below the relevance threshold."."""
    result = run([user(fenced(body))], RERANK)

    text = plain(result)[0]["content"]
    assert CHUNKS[1] in text
    assert CHUNKS[0] not in text
    assert CHUNKS[2] not in text
    assert text.startswith("<context>")
    assert text.endswith(f"</context>\n{QUESTION}")
    assert rag(result) == (1, 2)


def test_a_document_keeps_its_own_tags() -> None:
    """RAG: chunks are reranked "in place": what is kept is kept as it was."""
    kept = plain(run([user(fenced(DELIMITED["documents"]))], RERANK))[0]["content"]

    assert kept == fenced(f'<document id="1">\n{CHUNKS[1]}\n</document>\n')


@pytest.mark.parametrize("body", DELIMITED.values(), ids=DELIMITED)
def test_context_in_the_message_before_the_question_is_found(body: str) -> None:
    """RAG: "typically the last user message before the question"."""
    result = run([user("hello"), assistant("hi"), user(body), user(QUESTION)], RERANK)

    assert CHUNKS[1] in plain(result)[2]["content"]
    assert CHUNKS[0] not in plain(result)[2]["content"]
    assert plain(result)[3] == user(QUESTION)
    assert rag(result) == (1, 2)


def test_context_in_a_block_of_its_own_is_found() -> None:
    """RAG and Anthropic body shape: a text block of context, a text block of question."""
    blocks = [{"type": "text", "text": DELIMITED["numbered"]}, {"type": "text", "text": QUESTION}]

    kept = plain(run([{"role": "user", "content": blocks}], RERANK))[0]["content"]

    assert kept == [{"type": "text", "text": f"[2] {CHUNKS[1]}\n"}, blocks[1]]


def test_a_fenced_context_before_the_question_is_measured_by_the_question() -> None:
    """RAG: "cosine similarity to the actual user question", which is the latest user message."""
    messages = [
        user(f"<context>\n{DELIMITED['numbered']}</context>"),
        assistant("noted"),
        user("How long do cats sleep?"),
    ]

    assert plain(run(messages, RERANK))[0] == user(f"<context>\n[3] {CHUNKS[2]}\n</context>")


def test_the_best_chunk_comes_first() -> None:
    """RAG: "re-ranks the embedded chunks"."""
    body = f"[1] The parser has a limit.\n[2] {CHUNKS[1]}\n[3] Cats sleep.\n"

    text = plain(run([user(fenced(body))], RERANK))[0]["content"]

    assert text.index("parser.toml") < text.index("has a limit")


def test_with_nothing_below_the_threshold_the_chunks_stay_as_they_are() -> None:
    """Exception (promise 5): a mere change of order does not shrink, so it is not made."""
    body = "[1] The parser has a limit.\n[2] The token limit of the parser is set here.\n"

    result = run([user(fenced(body))], RERANK)

    assert (result.edits, rag(result)) == ([], (2, 0))


def test_with_everything_below_the_threshold_the_chunks_stay_as_they_are() -> None:
    """RAG: "the pruner is conservative": a context emptied would be a guess."""
    result = run([user(f"<context>\n{DELIMITED['numbered']}</context>\nWhy?")], RERANK)

    assert (result.edits, rag(result)) == ([], (3, 0))


@pytest.mark.parametrize(
    "body",
    [
        "one long passage without any delimiter",
        f"[1] {CHUNKS[0]}\n",
        "".join(f"<document>\n[{i}] {chunk}\n</document>\n" for i, chunk in enumerate(CHUNKS)),
    ],
    ids=["no delimiter", "one chunk", "two delimiters at once"],
)
def test_an_ambiguous_structure_is_left_alone_and_said_so(body: str) -> None:
    """RAG: "no clear delimiter, no embedded count signal [...] skips the rerank rather than guess"."""
    result = run([user(fenced(body))], RERANK)

    assert (result.edits, result.reason) == ([], ["rag_ambiguous"])


def test_a_second_run_finds_nothing_more_to_rerank() -> None:
    """RAG: what is kept is kept for good (promise 3)."""
    once = run([user(fenced(DELIMITED["numbered"]))], RERANK)

    assert run(plain(once), RERANK).edits == []


def test_text_blocks_of_the_messages_api_are_read_block_by_block() -> None:
    """Anthropic body shape: "messages[].content as an array of typed blocks"."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    blocks = [image, {"type": "text", "text": fenced(DELIMITED["numbered"])}]

    kept = plain(run([{"role": "user", "content": blocks}], RERANK))[0]["content"]

    assert kept == [image, {"type": "text", "text": fenced(f"[2] {CHUNKS[1]}\n")}]


def test_images_are_skipped() -> None:
    """Anthropic body shape: "skips image blocks (no text chars to count, dropping them changes semantics)"."""
    image = {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": "aGk="}}]}

    assert image in plain(run([user("go"), image, *talk(20)], "tessera"))


def test_the_priority_is_prune_before_compress_before_the_rest() -> None:
    """Composition cap: "M7 wins under the priority order M7 > M3 > M8"; the rerank is a part of M7."""
    policy = {
        "preset": "tessera",
        "compress": {"max_tool_result_tokens": 5, "rag": {"threshold": 0.2}},
        "collapse": {"after_turns": 0},
    }
    messages = [user("go"), calls("a"), results("a", text="x" * 400), *talk(20), user(fenced(DELIMITED["numbered"]))]

    assert PRESETS["tessera"]["composition"]["priority"] == ["prune", "compress", "collapse"]
    assert {edit.action for edit in run(messages, policy).edits} == {"drop", "rerank"}


def test_without_m7_the_next_of_the_order_has_the_budget() -> None:
    """Composition cap: "Single-pick budget"."""
    policy = {
        "composition": {"max_mutations": 1},
        "compress": {"max_tool_result_tokens": 5},
        "collapse": {"after_turns": 0},
    }
    messages = [user("go"), calls("a"), results("a", text="x" * 400), *talk(4)]

    assert {edit.stage for edit in run(messages, policy).edits} == {"compress"}


def test_gemini_is_pruned_too() -> None:
    """What we don't do (yet): "Google Gemini support"; here it is a format like the others."""
    contents = [{"role": "user" if i % 2 == 0 else "model", "parts": [{"text": f"turn {i}"}]} for i in range(15)]

    assert plain(run(contents, "tessera", "gemini")) == [contents[0], *contents[-8:]]


def test_dropped_turns_are_not_replaced_by_a_summary() -> None:
    """What we don't do: "it does not replace them with a generated summary"."""
    result = run([SYSTEM, *talk(20)], "tessera", "openai-chat")

    assert {edit.op for edit in result.edits} == {"drop"}


def test_the_summary_counts_turns_removed_and_chunks_kept() -> None:
    """Verification surfaces: "turns_removed=N,rag_kept=M"."""
    trimmed = run([SYSTEM, *talk(20)], "tessera", "openai-chat")
    both = run([SYSTEM, *talk(20), user(fenced(DELIMITED["numbered"]))], "tessera", "openai-chat")

    assert trimmed.summary == "turns_removed=12,rag_kept=0"
    assert both.summary == "turns_removed=13,rag_kept=1"
    assert run([user(fenced(DELIMITED["numbered"]))], RERANK).summary == "turns_removed=0,rag_kept=1"


def test_the_counts_of_the_log_line_are_those_of_the_result() -> None:
    """Verification surfaces: "turns_removed / rag_kept / rag_dropped / messages_before / messages_after counts"."""
    messages = [SYSTEM, *talk(20), user(fenced(DELIMITED["numbered"]))]

    result = run(messages, "tessera", "openai-chat")

    assert (result.counts.turns_removed, *rag(result)) == (13, 1, 2)
    assert count_after(len(messages), result.edits) == len(plain(result)) == 9


def test_it_is_opt_in() -> None:
    """What we promise: "M7 is opt-in per workload"."""
    assert run(talk(40), "").edits == []
    assert run(talk(40), {}).edits == []


def test_parallel_calls_in_the_middle_are_kept_whole() -> None:
    """What we promise: "Tool-pair preservation is a hard invariant", in the chat shape too."""
    messages = [user("go"), chat_calls("a", "b"), chat_result("a"), chat_result("b"), *talk(20)]

    assert plain(run(messages, "tessera", "openai-chat"))[:3] == messages[1:4]
