"""Another user of the same machine cannot use a node that asks for its token (B5)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import thyme
from tests.daemon.pages import a_node
from thyme.daemon.access_token import load_or_create_token
from thyme.model.errors import OptionError, StoreError, ThymeError

TOKEN = "a-token-of-some-length"


def test_b5_without_its_token_a_node_answers_nobody() -> None:
    async def story() -> None:
        async with a_node(token=TOKEN) as pages:
            wrong = [
                {},
                {"Authorization": "Bearer wrong"},
                {"Authorization": "Basic wrong"},
                {"Authorization": "Basic dGh5bWU6d3Jvbmc="},
                {"Authorization": TOKEN},
            ]
            for headers in wrong:
                for path in ("/v1/status", "/v1/peers", "/metrics", "/v1/objects?q=a", "/map"):
                    status, body = await pages.ask("GET", path, headers=headers)
                    assert (status, body["error"]) == (401, "forbidden")
            right = {"Authorization": f"Bearer {TOKEN}"}
            assert (await pages.ask("GET", "/v1/status", headers=right))[0] == 200

    asyncio.run(story())


def test_b5_an_application_gives_the_token_in_the_url_of_the_node() -> None:
    async def story() -> None:
        async with a_node(token=TOKEN) as pages:
            with pytest.raises(ThymeError):
                await thyme.connect(pages.url)
            url = pages.url.replace("http://", f"http://:{TOKEN}@")
            async with thyme.connect(url) as world:
                await world.insert(b"pixels", tags=["goal"])
                assert await world.subscriptions() == ()

    asyncio.run(story())


def test_b5_a_token_is_made_once_and_is_its_users_alone(tmp_path: Path) -> None:
    file = tmp_path / "private" / "token"
    token = load_or_create_token(file)

    assert len(token) >= 32
    assert load_or_create_token(file) == token
    assert file.stat().st_mode & 0o077 == 0


def test_b5_a_token_that_others_can_read_is_closed_to_them(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o644)

    assert load_or_create_token(file) == TOKEN
    assert file.stat().st_mode & 0o077 == 0


def test_b5_a_short_token_and_a_file_that_is_none_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("short")
    with pytest.raises(OptionError, match="16 characters"):
        load_or_create_token(file)
    with pytest.raises(StoreError, match="token file"):
        load_or_create_token(tmp_path)
