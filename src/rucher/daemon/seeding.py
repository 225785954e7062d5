"""Puts files into the workspace of a session that may not exist yet, owned by the tools' user as if they had made them."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from rucher.daemon.sessions import session_id
from rucher.daemon.settings import load_settings
from rucher.daemon.tools import open_hands
from rucher.instance.layout import Instance
from rucher.protocol.clock import SystemClock


def seed_workspace(instance: Instance, agent: str, room: str, texts: Mapping[str, str]) -> Path:
    """Write `texts` by file name into the workspace of the session of this agent and room; returns the workspace."""
    return asyncio.run(_seed(instance, agent, room, texts))


async def _seed(instance: Instance, agent: str, room: str, texts: Mapping[str, str]) -> Path:
    tenant = load_settings(instance).instance.tenant
    async with open_hands(instance, SystemClock()) as shared:
        hands = shared.pool.session(session_id(tenant, agent, room, ""))
        workspace = await hands.workspace()
        for name, text in texts.items():
            path = workspace / name
            path.write_text(text, "utf-8")
            await hands.adopt(path)
        return workspace
