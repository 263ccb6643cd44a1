"""docs/rules.md names every rule that a dialect can find broken, and no other."""

import re
from pathlib import Path

import pytest
from hypothesis import given

import pipeline.dialects
from contracts.policy import Validate
from pipeline.conversation import read_conversation
from pipeline.tokens import chars_over_four
from tests.pipeline.generators import FORMATS, Drawn, any_conversations
from tests.pipeline.promises import broken_rules

PAGE = (Path(__file__).parents[3] / "docs" / "rules.md").read_text()
ROWS = re.findall(r"^\| `([a-z*-]+)\.(\w+)` \| .+ \| .+ \|$", PAGE, re.MULTILINE)
SOURCES = Path(pipeline.dialects.__file__).parent


def listed(format_name: str) -> set[str]:
    return {f"{format_name}.{rule}" for owner, rule in ROWS if owner in ("*", format_name)}


@pytest.mark.parametrize("format_name", FORMATS)
def test_every_rule_that_is_found_broken_stands_on_the_page(format_name: str) -> None:
    @given(any_conversations(format_name))
    def holds(drawn: Drawn) -> None:
        conversation = read_conversation(drawn.snapshot.messages, format_name, chars_over_four)

        assert set(broken_rules(conversation)) <= listed(format_name)

    holds()


@pytest.mark.parametrize(("owner", "rule"), ROWS, ids=[f"{owner}.{rule}" for owner, rule in ROWS])
def test_every_rule_on_the_page_is_one_of_the_code(owner: str, rule: str) -> None:
    source = SOURCES / ("pairing.py" if owner == "*" else f"{owner.replace('-', '_')}.py")

    assert re.search(rf"\b{rule}\b", source.read_text())


def test_the_page_says_what_the_default_is() -> None:
    assert Validate().input == "repair"
