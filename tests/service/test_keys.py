"""Keys: the names of DESIGN.md, in one slot, out of reach for any id."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.keys import Keys, plain

KEYS = Keys("main")


def test_the_names_are_those_that_clients_use() -> None:
    assert KEYS.snapshots == "{main}:snapshots"
    assert KEYS.batch == "{main}:snapshots:batch"
    assert KEYS.pruned == KEYS.results("") == "{main}:pruned"
    assert KEYS.results("runner-7") == "{main}:inbox:runner-7"
    assert (KEYS.metrics, KEYS.dead, KEYS.ops) == ("{main}:metrics", "{main}:dead", "{main}:ops")
    assert KEYS.attempts == "{main}:attempts"
    assert KEYS.done("s-1") == "{main}:done:s-1"
    assert KEYS.latest("c-1") == "{main}:latest:c-1"
    assert KEYS.admitted("s-1") == "{main}:admitted:s-1"
    assert KEYS.blob("b-1") == "{main}:blob:b-1"


def test_live_traffic_comes_first() -> None:
    assert KEYS.inputs == ("{main}:snapshots", "{main}:snapshots:batch")


@pytest.mark.parametrize("name", ["a b", "{x}", "../up", "naïve", "", "x" * 129, "sha256-" + "0" * 64])
def test_an_id_that_is_not_plain_is_hashed(name: str) -> None:
    assert plain(name).startswith("sha256-")
    assert plain(name) != name


IDS = st.text(st.characters(codec="utf-8"), max_size=300)


@given(IDS, IDS)
def test_two_ids_never_share_a_key(one: str, other: str) -> None:
    assert (plain(one) == plain(other)) == (one == other)
