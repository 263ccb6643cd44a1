"""Counting: every method, what is not text, what is counted beside the messages, and each text once."""

import base64
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipeline.run
from contracts import Policy, Snapshot, Usage, load_policy, raw
from pipeline import prune
from pipeline.tokens import MEDIA_TOKENS, chars_over_four, counter, estimate
from tests.pipeline.arrays import assistant, calls, raws, results, run, user

METHODS = ("chars/4", "estimate", "calibrated", "o200k_base", "cl100k_base")
PROSE = "The agent reads the file, changes one line and runs the tests once more. " * 40
CODE = "def load(path: str) -> None:\n    for line in open(path):\n        total += int(line); print(total)\n" * 40
JSON = '{"path": "src/app.py", "lines": [1, 2, 3], "ok": true}, ' * 40
CHINESE = "代理读取文件并修改一行然后再次运行测试" * 40
BASE64 = base64.b64encode(bytes(range(256)) * 12).decode()


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("abc", 0), ("abcd", 1), ("x" * 401, 100), ("日本語文", 1)])
def test_the_seeds_count_four_characters_a_token(text: str, tokens: int) -> None:
    assert chars_over_four(text) == tokens


@pytest.mark.parametrize(
    ("text", "chars_per_token"),
    [(PROSE, 4.0), (CODE, 3.5), ("[" + JSON, 3.2), (CHINESE, 1.5), (BASE64, 1.0)],
    ids=["prose", "code", "json", "chinese", "base64"],
)
def test_the_estimate_knows_kinds_of_text(text: str, chars_per_token: float) -> None:
    assert len(text) / estimate(text) == pytest.approx(chars_per_token, rel=0.1)


@pytest.mark.parametrize("text", [PROSE, CODE, CHINESE], ids=["prose", "code", "chinese"])
def test_the_estimate_is_within_half_of_the_exact_count(text: str) -> None:
    assert estimate(text) == pytest.approx(counter("o200k_base")(text), rel=0.5)


@pytest.mark.parametrize("method", ["o200k_base", "cl100k_base"])
@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("hello world", 2), ("tokens", 1)])
def test_exact_methods_count_the_model_s_tokens(method: str, text: str, tokens: int) -> None:
    assert counter(method)(text) == tokens


@pytest.mark.parametrize("method", ["o200k_base", "cl100k_base"])
def test_special_tokens_in_a_text_are_text(method: str) -> None:
    assert counter(method)("<|endoftext|>") > 1


@pytest.mark.parametrize("method", ["o200k_base", "cl100k_base"])
def test_a_very_long_text_is_counted_in_pieces(method: str) -> None:
    assert counter(method)("ab " * 300_000) >= 300_000


@pytest.mark.parametrize("method", METHODS)
@given(text=st.text(max_size=400))
def test_any_text_can_be_counted(method: str, text: str) -> None:
    assert 0 <= counter(method)(text) <= 4 * len(text) + 1


@pytest.mark.parametrize("method", METHODS)
def test_a_run_says_which_method_counted(method: str) -> None:
    tokens = run([user(PROSE)], {"count": method}).tokens

    assert (tokens.method, tokens.before) == (method, counter(method)(PROSE))


def before(messages: list[dict[str, Any]], format_name: str = "anthropic", **fields: Any) -> int:
    return run(messages, {"count": "chars/4"}, format_name, **fields).tokens.before


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BASE64 * 50}}


def test_an_image_has_a_flat_price_whatever_its_base64() -> None:
    assert before([{"role": "user", "content": [IMAGE]}]) == MEDIA_TOKENS


def test_an_image_inside_a_result_has_the_same_price() -> None:
    content = [{"type": "tool_result", "tool_use_id": "a", "content": [IMAGE]}]

    assert before([calls("a"), {"role": "user", "content": content}]) - before([calls("a")]) == MEDIA_TOKENS


@pytest.mark.parametrize(
    ("format_name", "item"),
    [
        ("openai-chat", {"role": "user", "content": [{"type": "image_url", "image_url": {"url": BASE64 * 50}}]}),
        (
            "openai-responses",
            {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": BASE64 * 50}]},
        ),
        ("gemini", {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": BASE64 * 50}}]}),
        (
            "opencode",
            {"info": {"role": "user"}, "parts": [{"type": "file", "mime": "image/png", "url": BASE64 * 50}]},
        ),
    ],
    ids=["openai-chat", "openai-responses", "gemini", "opencode"],
)
def test_media_is_not_text_in_any_format(format_name: str, item: dict[str, Any]) -> None:
    assert before([item], format_name) == MEDIA_TOKENS


def test_system_prompt_and_tools_are_counted() -> None:
    alone = before([user("x" * 40)])

    assert before([user("x" * 40)], system=raw("s" * 398), tools=raw(["t" * 396])) - alone == 200


def test_a_dropped_message_is_worth_what_it_was_counted_at() -> None:
    pruned = run([user(PROSE), assistant("ok"), user("go")], {"prune": {"strategy": "sliding_window", "max_turns": 1}})

    assert pruned.tokens.before - pruned.tokens.after == sum(e.tokens_before - e.tokens_after for e in pruned.edits)


CALIBRATED = {"count": "calibrated"}


def test_calibrated_scales_by_the_usage_reported_and_tells_the_estimate() -> None:
    messages = [user(PROSE), assistant(PROSE), user("go")]
    estimated = run(messages, {"count": "estimate"}).tokens.before
    covered = run(messages[:2], {"count": "estimate"}).tokens.before

    tokens = run(messages, CALIBRATED, usage=Usage(input_tokens=covered * 2, messages=2)).tokens

    assert (tokens.before, tokens.estimate_before) == (estimated * 2, estimated)


def test_without_usage_calibrated_is_the_estimate() -> None:
    tokens = run([user(PROSE)], CALIBRATED).tokens

    assert (tokens.before, tokens.estimate_before) == (estimate(PROSE), None)


@pytest.mark.parametrize(
    "policy",
    [{}, {"prune": {"strategy": "token_budget", "max_tokens": 40}}, {"collapse": {"after_turns": 0, "into": "stub"}}],
    ids=["nothing", "budget", "collapse"],
)
def test_each_text_is_counted_once_in_a_run(policy: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    counted: Counter[str] = Counter()

    def count(text: str) -> int:
        counted[text] += 1
        return len(text) // 4

    monkeypatch.setattr(pipeline.run, "counter", lambda _: count)
    texts = [f"{number} {PROSE}" for number in range(4)]
    messages = [user(texts[0]), assistant(texts[1]), calls("a"), results("a", text=texts[2]), user(texts[3])]
    _prune(messages, load_policy(policy))

    assert {text: counted[text] for text in texts} == dict.fromkeys(texts, 1)


def _prune(messages: list[dict[str, Any]], policy: Policy) -> None:
    prune(Snapshot("c", raws(messages), format="anthropic"), policy)
