"""Speaks to the running daemon of an instance over its loopback port, with the instance's token.

Called by commands. Whatever answers on that port, each call ends in time with a result or one line for a person.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2

from rucher.daemon.lock import holder_of
from rucher.daemon.settings import find_instance, load_settings
from rucher.instance.layout import Instance
from rucher.instance.secrets import read_token
from rucher.protocol.clock import SystemClock, SystemEntropy
from rucher.protocol.errors import BadInput, Retryable, RucherError, Uncertain
from rucher.protocol.ids import is_id, ulid

WAIT_S = 55.0
"""Seconds that one call waits for an outcome; a longer wait is several calls."""
ANSWER_S = 30.0
"""Seconds that the daemon may be silent, beyond what it was asked to wait."""
MOST_DETAIL = 1000
"""The longest explanation that is shown, in characters."""

_FAILED = 500
_BUSY = 503
_REFUSED = frozenset({401, 403})


class Daemon:
    """The daemon of one instance, as commands see it. Raises BadInput when the instance cannot tell how to reach it."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._port = load_settings(instance).daemon.port
        self._client = httpx2.Client(
            base_url=f"http://127.0.0.1:{self._port}/api/v1", trust_env=False,
            headers={"authorization": f"Bearer {read_token(instance.token)}"},
        )  # fmt: skip

    def __enter__(self) -> "Daemon":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def call(self, method: str, path: str, json: Any = None, wait_s: float | None = None) -> dict[str, Any]:
        """The answer's JSON object, empty when there is none; the daemon is asked to wait up to `wait_s`, where given.

        Raises BadInput when it was refused, Retryable when it may work later, and Uncertain when the daemon failed at it.
        """
        if not holder_of(self._instance.lock):
            # Another folder's daemon may answer on this port: that of the one that this one was copied from.
            raise self._not_running()
        try:
            response = self._client.request(
                method, path, json=json, params={} if wait_s is None else {"wait_s": wait_s},
                timeout=ANSWER_S + (wait_s or 0.0),
            )  # fmt: skip
        except httpx2.ConnectError as error:
            raise self._not_running() from error
        except httpx2.RequestError as error:
            raise Retryable(
                f"the daemon stopped answering ({error}); what it accepted is kept, look with `rucher events`"
            ) from error
        if not response.is_success:
            raise self._refusal(response)
        answer = _json(response) if response.content else {}
        if not isinstance(answer, dict):
            raise self._stranger(response)
        return answer

    def accept(self, message: Mapping[str, Any]) -> tuple[str, str]:
        """Hand a message in; returns the ids of its event and its trace. Raises as `call` does."""
        accepted = self.call("POST", "/messages", json=message)
        match accepted:
            case {"event_id": str(event_id), "trace_id": str(trace_id)} if is_id(event_id) and is_id(trace_id):
                return event_id, trace_id
            case _:
                raise BadInput(self._strange("no ids"))

    def outcome(self, event_id: str, timeout_s: float) -> dict[str, Any]:
        """The message's outcome; its status is `pending` when `timeout_s` went by first. Raises as `call` does."""
        left = timeout_s
        while True:
            wait = min(left, WAIT_S)
            found = self.call("GET", f"/messages/{event_id}/outcome", wait_s=wait)
            if not {"status", "answer"} <= found.keys():
                raise BadInput(self._strange("no outcome"))
            left -= wait
            if found["status"] != "pending" or left <= 0:
                return found

    def _not_running(self) -> BadInput:
        return BadInput(f"the daemon of {self._instance.root} is not running; start it with `rucher up`")

    def _refusal(self, response: httpx2.Response) -> RucherError:
        detail = _detail(_json(response))
        if response.status_code in _REFUSED:
            return BadInput(
                f"the daemon on port {self._port} does not take the token in {self._instance.token}: that file was "
                "changed since the daemon started, or the port is another instance's; start the daemon again"
            )
        if response.status_code == _BUSY:
            return Retryable(detail or "the daemon cannot do it now; try again")
        if response.status_code >= _FAILED:
            return Uncertain(
                f"the daemon failed at this ({detail or response.status_code}): see the end of {self._instance.log}, "
                "and what it accepted with `rucher events`"
            )
        return BadInput(detail) if detail else self._stranger(response)

    def _stranger(self, response: httpx2.Response) -> BadInput:
        return BadInput(self._strange(str(response.status_code)))

    def _strange(self, answered: str) -> str:
        return (
            f"the program on port {self._port} answered {answered}; it may not be this instance's daemon: "
            f"stop it, or set another daemon.port in {self._instance.config}"
        )


def order(given: Path | None, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Give the daemon of the instance that is meant an order, under a key of its own, and return what it answers."""
    key = ulid(SystemClock().now(), SystemEntropy().bytes(10))
    with Daemon(find_instance(given)) as daemon:
        return daemon.call("POST", path, json={"key": key, **body})


def _json(response: httpx2.Response) -> Any:
    try:
        return response.json()
    except (ValueError, RecursionError):
        return None


def _detail(answer: Any) -> str:
    """What a refusal says, on one line; empty when it says nothing."""
    match answer:
        case {"detail": str(text)}:
            return text[:MOST_DETAIL]
        case {"detail": [*faults]}:
            return "; ".join(filter(None, map(_fault, faults)))[:MOST_DETAIL]
        case _:
            return ""


def _fault(fault: Any) -> str:
    match fault:
        case {"loc": [_, *rest], "msg": str(text)}:
            return f"{_field(rest)}: {text}"
        case {"msg": str(text)}:
            return text
        case _:
            return ""


def _field(parts: Sequence[object]) -> str:
    return ".".join(map(str, parts)) or "the request"
