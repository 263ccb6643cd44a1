"""Lua scripts: read once, called by hash, loaded again when the server has forgotten them."""

import hashlib
from pathlib import Path
from typing import Any

import redis
from redis.asyncio import Redis
from redis.exceptions import NoScriptError


class Script:
    """One script of this package; every one of ours is safe to run again."""

    def __init__(self, name: str) -> None:
        self.text = Path(__file__).with_name(f"{name}.lua").read_text()
        self.sha = hashlib.sha1(self.text.encode()).hexdigest()

    def command(self, keys: list[str], arguments: list[Any]) -> list[Any]:
        """The EVALSHA command that calls this script."""
        return ["EVALSHA", self.sha, len(keys), *keys, *arguments]

    async def load(self, client: Redis) -> None:
        """Make the server know the script."""
        await client.script_load(self.text)

    async def call(self, client: Redis, keys: list[str], arguments: list[Any]) -> Any:
        """Run the script, whether the server knows it or not."""
        try:
            return await client.evalsha(self.sha, len(keys), *keys, *arguments)
        except NoScriptError:
            await self.load(client)
            return await client.evalsha(self.sha, len(keys), *keys, *arguments)

    def call_blocking(self, client: "redis.Redis", keys: list[str], arguments: list[Any]) -> Any:
        """The same for a command that has no event loop."""
        try:
            return client.evalsha(self.sha, len(keys), *keys, *arguments)
        except NoScriptError:
            client.script_load(self.text)
            return client.evalsha(self.sha, len(keys), *keys, *arguments)
