"""``secateur schema``: the contracts as JSON Schemas that a stranger's tools accept."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from contracts.schema import CONTRACTS
from service.cli import main

Captured = pytest.CaptureFixture[str]


def schema_of(captured: Captured) -> Any:
    return json.loads(captured.readouterr().out)


@pytest.mark.parametrize("name", CONTRACTS)
def test_each_contract_has_a_valid_schema(name: str, capsys: Captured) -> None:
    assert main(["schema", name]) == 0
    Draft202012Validator.check_schema(schema_of(capsys))


def test_without_a_name_every_schema_is_printed(capsys: Captured) -> None:
    assert main(["schema"]) == 0
    assert list(schema_of(capsys)) == list(CONTRACTS)


def test_the_snapshot_schema_accepts_a_snapshot_and_refuses_one_without_messages(capsys: Captured) -> None:
    main(["schema", "snapshot"])
    validator = Draft202012Validator(schema_of(capsys))

    assert validator.is_valid({"conversation_id": "c-1", "messages": [{"role": "user", "content": "hello"}]})
    assert not validator.is_valid({"conversation_id": "c-1"})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        pytest.param("snapshoot", "did you mean 'snapshot'?", id="close"),
        pytest.param("xyz", "known: snapshot", id="far"),
    ],
)
def test_an_unknown_name_gets_a_hint_in_one_line(name: str, hint: str, capsys: Captured) -> None:
    assert main(["schema", name]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert hint in err
