"""Speaks to the running daemon of an instance over its loopback port, with the instance's token."""

from typing import Any

import httpx2

from rucher.daemon.settings import load_settings
from rucher.instance.layout import Instance
from rucher.protocol.errors import BadInput, Denied, Retryable

WAIT_S = 55.0
"""Seconds that one call may take; a longer wait is several calls."""


class Daemon:
    """The daemon of one instance, as commands see it."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        port = load_settings(instance).daemon.port
        self._client = httpx2.Client(
            base_url=f"http://127.0.0.1:{port}/api/v1", timeout=WAIT_S + 10, trust_env=False,
            headers={"authorization": f"Bearer {_token(instance)}"},
        )  # fmt: skip

    def call(self, method: str, path: str, json: Any = None, params: dict[str, Any] | None = None) -> Any:
        """The answer's JSON, or None when there is none. Raises BadInput, Denied or Retryable with the daemon's own words."""
        try:
            response = self._client.request(method, path, json=json, params=params)
        except httpx2.ConnectError as error:
            raise BadInput(f"the daemon of {self._instance.root} is not running; start it with `rucher up`") from error
        except httpx2.TransportError as error:
            raise Retryable(
                f"the daemon stopped answering ({error}); what it accepted is kept, look with `rucher events`"
            ) from error
        if response.is_success:
            return response.json() if response.content else None
        raise _refusal(response)

    def outcome(self, event_id: str, timeout_s: float) -> dict[str, Any]:
        """The message's outcome; its status is `pending` when `timeout_s` went by first."""
        left = timeout_s
        while True:
            wait = min(left, WAIT_S)
            found: dict[str, Any] = self.call("GET", f"/messages/{event_id}/outcome", params={"wait_s": wait})
            left -= wait
            if found["status"] != "pending" or left <= 0:
                return found


def _token(instance: Instance) -> str:
    try:
        return instance.token.read_text("ascii").strip()
    except FileNotFoundError as error:
        raise BadInput(f"{instance.root} has no token yet; start its daemon once with `rucher up`") from error


def _refusal(response: httpx2.Response) -> Exception:
    try:
        detail = response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = f"the program on this port answered {response.status_code}; it may not be this instance's daemon"
    match response.status_code:
        case 403:
            return Denied(str(detail))
        case 503:
            return Retryable(str(detail))
        case _:
            return BadInput(str(detail))
