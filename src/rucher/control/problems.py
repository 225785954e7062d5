"""How the interface and the door refuse: RFC 9457 (https://www.rfc-editor.org/rfc/rfc9457) with one line of detail."""

from collections.abc import Mapping

from starlette.responses import JSONResponse


def problem(status: int, title: str, detail: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """An answer that says what is wrong and what to do; text from outside in it is escaped to ASCII."""
    shown = detail.encode("ascii", "backslashreplace").decode()
    body = {"title": title, "status": status, "detail": shown}
    return JSONResponse(body, status, headers=headers, media_type="application/problem+json")
