"""Settings: defaults, overrides, and one line for everything that cannot be used."""

from pathlib import Path

import pytest

from service.settings import MAX_BLOCK_MS, SOCKET_TIMEOUT_S, TABLE, VARIABLES, SettingsError, load_settings


def test_an_empty_environment_gives_the_defaults() -> None:
    settings = load_settings({})

    assert settings.redis_url is None
    assert settings.lane == "main"
    assert settings.claim_after_ms == 30_000
    assert settings.attempts == 4
    assert (settings.http_host, settings.http_port) == ("127.0.0.1", 0)
    assert settings.policy.name == "steady"


def test_every_variable_of_the_table_is_a_field_and_has_a_meaning() -> None:
    settings = load_settings({})

    for variable in TABLE:
        assert hasattr(settings, variable.name.lower())
        assert variable.meaning
    assert {f"SECATEUR_{variable.name}" for variable in TABLE} == VARIABLES


def test_a_variable_overrides_its_default() -> None:
    environ = {"SECATEUR_CLAIM_AFTER_MS": "500", "SECATEUR_LANE": "tenant-7", "SECATEUR_POLICY": '{"preset": "beskar"}'}

    settings = load_settings(environ)

    assert (settings.claim_after_ms, settings.lane, settings.policy.name) == (500, "tenant-7", "beskar")


def test_an_empty_variable_counts_as_unset() -> None:
    assert load_settings({"SECATEUR_BATCH_COUNT": "", "SECATEUR_REDIS_URL": ""}) == load_settings({})


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, Path("~/.local/state/secateur").expanduser()),
        ({"XDG_STATE_HOME": "/state"}, Path("/state/secateur")),
        ({"XDG_STATE_HOME": "/state", "SECATEUR_DATA_DIR": "~/mine"}, Path("~/mine").expanduser()),
    ],
)
def test_the_data_directory_follows_the_state_home_unless_it_is_set(environ: dict[str, str], expected: Path) -> None:
    assert load_settings(environ).data_dir == expected


def test_a_misspelt_name_is_refused_with_the_nearest_right_one() -> None:
    with pytest.raises(SettingsError, match=r"SECATEUR_CLAIM_AFTER.*did you mean SECATEUR_CLAIM_AFTER_MS\?"):
        load_settings({"SECATEUR_CLAIM_AFTER": "1"})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("WORKERS", "0", "a whole number from 1"),
        ("WORKERS", "two", "a whole number"),
        ("WORKERS", "٣", "a whole number"),
        ("BLOCK_MS", str(MAX_BLOCK_MS + 1), "a whole number"),
        ("LOG", "xml", "one of auto, json, console"),
        ("REDIS_URL", "localhost:6379", "redis://"),
        ("REDIS_URL", "redis+cluster://localhost:6379", "starts with redis://, rediss:// or unix://"),
        ("REDIS_URL", "redis+sentinel://localhost:26379/main", "starts with redis://, rediss:// or unix://"),
        ("REDIS_URL", "redis://localhost:SECRET", "redis://user:password@host:6379/0"),
        ("REDIS_URL", "redis://:SEC/RET@localhost:6379", "redis://user:password@host:6379/0"),
        ("REDIS_URL", "redis://localhost:99999", "redis://user:password@host:6379/0"),
        ("REDIS_URL", "redis://[::1", "redis://user:password@host:6379/0"),
        ("REDIS_URL", "redis://localhost/main", "redis://user:password@host:6379/0"),
        ("REDIS_URL", "redis://localhost?colour=red", "options that redis-py knows"),
        ("REDIS_URL", "redis://localhost?socket_timeout=soon", "options that redis-py knows"),
        ("REDIS_URL", "rediss://localhost?ssl_ca_certs=/no/such.pem", "ssl_ca_certs names a file that can be read"),
        ("REDIS_URL", "rediss://localhost?ssl_keyfile=/", "ssl_keyfile names a file that can be read"),
        ("DATA_DIR", "~nobody-of-this-name/x", "a directory"),
        ("HTTP_PORT", "65536", "a whole number"),
        ("LANE", "a b", "characters out of"),
        ("LANE", "{x}", "characters out of"),
        ("POLICY", "baskar", "beskar"),
        ("POLICY", "{broken", "JSON object"),
        ("POLICY", '{"a":' * 20_000, "JSON object"),
        ("POLICY", '{"prune": {"stratgy": "x"}}', "strategy"),
    ],
)
def test_a_value_out_of_range_is_refused_in_one_line(name: str, value: str, says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings({f"SECATEUR_{name}": value})

    assert f"SECATEUR_{name} must be" in str(refused.value)
    assert says in str(refused.value)
    assert "SEC" not in str(refused.value).replace("SECATEUR", "")
    assert "\n" not in str(refused.value)


def test_every_worker_has_a_port() -> None:
    environ = {"SECATEUR_HTTP_PORT": "65535", "SECATEUR_WORKERS": "1"}

    assert load_settings(environ).http_port == 65_535
    with pytest.raises(SettingsError, match="SECATEUR_HTTP_PORT must leave a port"):
        load_settings(environ | {"SECATEUR_WORKERS": "2"})


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost",
        "redis://localhost/",
        "redis://user:pass@[::1]:6379/3",
        f"rediss://host:1/0?ssl_ca_certs={__file__}&ssl_check_hostname=false",
        "unix:///run/redis.sock?db=2",
        "unix://user:pass@/run/redis.sock",
    ],
)
def test_a_url_that_can_be_used_is_taken_as_it_is(url: str) -> None:
    assert load_settings({"SECATEUR_REDIS_URL": url}).redis_url == url


def test_an_idle_read_can_never_outwait_its_socket() -> None:
    assert MAX_BLOCK_MS <= SOCKET_TIMEOUT_S * 1000 / 2
