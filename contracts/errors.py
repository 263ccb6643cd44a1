"""The one list of codes, and the one error that carries them: why an input was refused, why an edit was made."""

from enum import StrEnum
from typing import Self


class Code(StrEnum):
    """A short machine-readable reason; ``meaning`` is what an operator reads."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        code = str.__new__(cls, value)
        code._value_ = value
        code.meaning = meaning
        return code

    # Refusals: the entry becomes a dead letter, the command line exits with 2.
    NO_BODY = "no_body", "The stream entry has no `__data__` field."
    EMPTY_BODY = "empty_body", "The body is empty."
    TOO_MANY_FIELDS = "too_many_fields", "The stream entry has more fields than a snapshot ever needs."
    DUPLICATE_FIELD = "duplicate_field", "The stream entry names a field twice with different values."
    TOO_LARGE = "too_large", "The body is over the size limit."
    NOT_UTF8 = "not_utf8", "The body is not valid UTF-8."
    NOT_JSON = "not_json", "The body is not valid JSON."
    TOO_DEEP = "too_deep", "The body is nested deeper than the limit."
    TOO_MANY_MESSAGES = "too_many_messages", "The messages array is longer than the limit."
    TOO_MANY_CONTAINERS = "too_many_containers", "The body holds more objects and arrays than the limit."
    WRONG_SHAPE = "wrong_shape", "A field is missing or of the wrong type."
    OUT_OF_RANGE = "out_of_range", "A number is outside its allowed range."
    BAD_CONVERSATION_ID = "bad_conversation_id", "conversation_id must be 1-256 bytes without control characters."
    CONVERSATION_MISMATCH = (
        "conversation_mismatch",
        "The entry's `conversation_id` field names another conversation than the body.",
    )
    BAD_SNAPSHOT_ID = "bad_snapshot_id", "snapshot_id must be at most 256 bytes without control characters."
    BAD_INBOX = "bad_inbox", "inbox must match [A-Za-z0-9_.-]{1,64}."
    UNSUPPORTED_VERSION = (
        "unsupported_version",
        "The snapshot's version is newer than this worker; replay after an upgrade.",
    )
    UNKNOWN_FORMAT = "unknown_format", "The format is not one of ours, or `auto` could not tell it."
    UNKNOWN_POLICY = "unknown_policy", "No preset has this name."
    BAD_POLICY = "bad_policy", "The inline policy has a wrong field or value."
    BAD_ENCODING = "bad_encoding", "The body's compression is unknown, broken or nested."
    INFLATES_TOO_LARGE = "inflates_too_large", "The compressed body inflates beyond the size limit."
    INVALID_INPUT = "invalid_input", "The array breaks the provider's rules and the policy says reject."
    CRASHED = "crashed", "Pruning this snapshot killed its worker on every isolated attempt."
    TIMED_OUT = "timed_out", "Pruning this snapshot ran past its deadline."
    OUT_OF_MEMORY = "out_of_memory", "Pruning this snapshot needs more memory than a worker may use."
    INTERNAL = "internal", "A fault of ours; the snapshot is kept for replay."

    # Admission: said to the sender; nothing was added to the stream.
    LANE_FULL = "lane_full", "The input holds as many entries or bytes as it may; send again later."

    # The client's own: why it hands back the original array.
    NO_ANSWER = "no_answer", "No result came in time."
    SERVER_AWAY = "server_away", "The server could not be reached in time, or refused."
    RESULT_GONE = "result_gone", "The snapshot was settled, but its result is not in this client's inbox."
    OTHER_ARRAY = "other_array", "Another array was sent under this snapshot_id before."
    BAD_RESULT = "bad_result", "The result cannot be read or applied by this client."
    CLIENT_CLOSED = "client_closed", "The client was closed while the call waited."

    # Outcomes: why a result is what it is.
    NOTHING_TO_DO = "nothing_to_do", "The policy found nothing to change."
    BELOW_GATE = "below_gate", "The conversation is below the policy's gate."
    SERVER_SIDE_HISTORY = "server_side_history", "previous_response_id is set: the provider holds the history."
    INPUT_INVALID = "input_invalid", "The array broke the provider's rules when it came."
    INPUT_REPAIRED = "input_repaired", "The array broke the provider's rules when it came and was repaired."
    STAGE_UNDONE = "stage_undone", "A stage's work was taken back because its result would have been invalid or larger."
    STAGE_FAILED = "stage_failed", "A stage raised; its work was left out."
    OVER_BUDGET = "over_budget", "What must stay is larger than the budget."
    THINKING_BOUND = "thinking_bound", "An edit would have broken signed thinking and the policy says refuse."
    MUTATION_CAP = "mutation_cap", "A content mutation was left out under the composition cap."
    CACHE_MARK_GONE = "cache_mark_gone", "A message with a prompt-cache mark was dropped, so that breakpoint is gone."
    RAG_AMBIGUOUS = "rag_ambiguous", "The context block's structure was unclear, so it was left alone."
    NEWER_SETTLED = "newer_settled", "A newer snapshot of this conversation was settled first."
    ALREADY_SETTLED = "already_settled", "A snapshot with this id was settled before."

    # Cuts: why `steady` pruned at that point.
    HARD_LIMIT = "hard_limit", "The live context was over the budget."
    HIGH_WATER = "high_water", "The live context was over the high-water mark and the cut pays within the horizon."
    COLD_CACHE = "cold_cache", "The provider's cache was cold, so the cut cost nothing."

    # Edits: why an item was changed.
    OVER_RESULT_CAP = "over_result_cap", "The tool result is longer than the cap."
    OLD_TOOL_OUTPUT = "old_tool_output", "The tool output is old and outside the protected zone."
    OLD_ROUND = "old_round", "The tool round is older than the collapse age."
    OUTSIDE_WINDOW = "outside_window", "The message is older than the window."
    LOW_IMPORTANCE = "low_importance", "The message scored lowest."
    TOKEN_BUDGET = "token_budget", "The oldest messages went to meet the token budget."
    MIDDLE_TURN = "middle_turn", "A middle turn without a tool reference."
    BEFORE_COMPACTION = "before_compaction", "The provider ignores what stands before its own compaction item."
    LOW_RELEVANCE = "low_relevance", "Context chunks were reordered by relevance and the irrelevant dropped."
    STALE_READ = "stale_read", "What the tool read was written or read again later."
    RETRIED_CALL = "retried_call", "The call failed and was made again later."
    OLD_RESULT = "old_result", "The old result was condensed to its evidence."
    OLD_ROUND_DROPPED = "old_round_dropped", "The oldest round went to meet the budget."
    PRUNED_NOTICE = "pruned_notice", "A notice stands where messages were removed."
    KEPT_IN_FRONT = "kept_in_front", "The provider refuses an array that does not start this way."
    UNANSWERED_CALL = "unanswered_call", "A call was never answered; a constant result was added."
    UNMATCHED_RESULT = "unmatched_result", "A result has no call; it was removed."
    STALE_THINKING = "stale_thinking", "Signed thinking after the first edit is no longer valid."
    STALE_ITEM_ID = "stale_item_id", "The item's id refers to reasoning that is gone."
    EMPTY_CONTENT = "empty_content", "The provider rejects empty content."
    RULE_REPAIR = "rule_repair", "The item was changed to satisfy a provider rule."


class Refused(Exception):
    """An input cannot be processed: a code and a short detail that never quotes conversation text."""

    def __init__(self, code: Code, detail: str = "") -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail or code.meaning

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"
