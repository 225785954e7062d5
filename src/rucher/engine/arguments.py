"""Checks a tool call's arguments against the tool's JSON schema (draft 2020-12), before anything runs."""

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator

from rucher.protocol.conversation import ToolSpec


def fault(spec: ToolSpec, arguments: Mapping[str, Any]) -> str:
    """What is wrong with the arguments, in words a model can act on; empty when nothing is."""
    error = next(iter(Draft202012Validator(spec.parameters).iter_errors(dict(arguments))), None)
    if error is None:
        return ""
    where = ".".join(str(part) for part in error.absolute_path)
    return f"argument {where}: {error.message}" if where else error.message
