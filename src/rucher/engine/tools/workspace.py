"""The five tools on a session's workspace, as a model sees them; their acts are the sandbox's runner's.

The daemon gives them to agents whose definition names them. Names and arguments here are those that the runner knows.
"""

from rucher.protocol.conversation import Effect, ToolSpec

_PATH = {"type": "string", "description": "Path relative to the workspace, such as notes/a.txt"}
_FOLDER = {"type": "string", "description": "Folder relative to the workspace; . is the workspace"}
_LINE = {"type": "integer", "minimum": 1}

READ_FILE = ToolSpec(
    name="read_file",
    description=(
        "Read a text file. Use it when you know the file's path; call list_dir or search first when you do not."
        " start and end are line numbers from 1; leave them out to read the whole file."
        " If it says that the file does not exist, call list_dir and use a name that is listed."
    ),
    parameters={
        "type": "object",
        "properties": {"path": _PATH, "start": _LINE, "end": _LINE},
        "required": ["path"],
        "additionalProperties": False,
    },
    effect=Effect.READ,
    timeout_s=30.0,
)

LIST_DIR = ToolSpec(
    name="list_dir",
    description=(
        "List the files and folders in a folder, with sizes. Use it to see what there is."
        " Names that end in / are folders."
    ),
    parameters={
        "type": "object",
        "properties": {"path": _FOLDER},
        "required": ["path"],
        "additionalProperties": False,
    },
    effect=Effect.READ,
    timeout_s=30.0,
)

SEARCH = ToolSpec(
    name="search",
    description=(
        "Find lines in all text files below a folder."
        " Use it when you look for a word or a fact and do not know the file."
        " pattern is one or two words, or a regular expression; upper and lower case are the same."
        " Each result is path:line: text. If nothing is found, search for one other word."
    ),
    parameters={
        "type": "object",
        "properties": {"pattern": {"type": "string", "minLength": 1}, "path": _FOLDER},
        "required": ["pattern"],
        "additionalProperties": False,
    },
    effect=Effect.READ,
    timeout_s=60.0,
)

WRITE_FILE = ToolSpec(
    name="write_file",
    description=(
        "Write a text file: content becomes the whole file, and what it held before is gone. Missing folders are made."
        " To change a part of a file, read it first and write all of it."
    ),
    parameters={
        "type": "object",
        "properties": {"path": _PATH, "content": {"type": "string"}},
        "required": ["path", "content"],
        "additionalProperties": False,
    },
    effect=Effect.IDEMPOTENT_WRITE,
    timeout_s=30.0,
)

SHELL = ToolSpec(
    name="shell",
    description=(
        "Run a shell command in the workspace and get its output. Use it to count, convert, run a program or a script."
        " There is no network and no input, and every process it started is ended when it returns."
        " If it fails, the output ends with the exit code: read the message before you try again."
    ),
    parameters={
        "type": "object",
        "properties": {"command": {"type": "string", "minLength": 1}},
        "required": ["command"],
        "additionalProperties": False,
    },
    effect=Effect.NON_IDEMPOTENT,
    timeout_s=120.0,
)

WORKSPACE_TOOLS = (READ_FILE, LIST_DIR, SEARCH, WRITE_FILE, SHELL)
"""All five, in the order in which a model is shown them."""
