"""What all tests share: Hypothesis profiles and one real embedded server."""

import os
from collections.abc import Iterator

import pytest
import redis
from hypothesis import HealthCheck, settings

from service.embedded import serve

# A busy machine makes generation slow, and that says nothing about the code under test.
SLOW_IS_FINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("default", SLOW_IS_FINE, max_examples=200, derandomize=True)
settings.register_profile("explore", SLOW_IS_FINE, max_examples=200)
settings.register_profile("nightly", SLOW_IS_FINE, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for the whole run; a test that writes to it takes `redis_url` instead."""
    with serve(None, tmp_path_factory.mktemp("valkey")) as url:
        yield url


@pytest.fixture
def redis_url(server_url: str) -> str:
    """The URL of a real, empty server."""
    with redis.Redis.from_url(server_url) as client:
        client.flushall()
    return server_url
