from pathlib import Path

import pytest

from rucher.protocol.errors import BadInput
from rucher.surfaces.destinations import File, Places, Remote, Webhook, parse

ROOT = Path("/hive")
AGENTS = ("scribe", "librarian")
GOOD = """\
# mine
[webhook.crm]
url = "https://crm.example/hook?team=1"
events = ["answer", "failure"]
headers = { x-team = "bees" }
timeout_s = 2.5
max_chars = 4000
ca = "certs/ca.pem"

[webhook.local]
url = "http://127.0.0.1:9000/"

[file.notes]
path = "notes/all.jsonl"

[file.elsewhere]
path = "/mnt/disk/all.txt"
format = "text"

[instance.laptop]
url = "https://laptop.example/"
source = "home"

[agent.scribe]
at = "instance:laptop"
"""


def read(text: str) -> Places:
    return parse(text.encode(), ROOT / "destinations.toml", AGENTS)


def test_a_good_file_says_all_of_it() -> None:
    places = read(GOOD)
    assert places.webhooks == {
        "crm": Webhook(
            "https://crm.example/hook?team=1",
            ("answer", "failure"),
            {"x-team": "bees"},
            2.5,
            4000,
            "/hive/certs/ca.pem",
        ),
        "local": Webhook("http://127.0.0.1:9000/"),
    }
    assert places.files == {
        "notes": File(ROOT / "notes/all.jsonl", "jsonl", inside=True),
        "elsewhere": File(Path("/mnt/disk/all.txt"), "text", inside=False),
    }
    assert places.remotes == {"laptop": Remote("https://laptop.example/ingress/home")}
    assert places.at == {"scribe": "laptop"}
    assert places.names == {"webhook:crm", "webhook:local", "file:notes", "file:elsewhere", "instance:laptop"}


def test_no_file_is_no_destinations() -> None:
    assert read("") == Places()


HOOK = '[webhook.a]\nurl = "https://h/"\n'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[webhook.a", "1:11: not valid TOML"),
        ("# \xe9\n[webhok.a]\n", "2:1: unknown key 'webhok'; did you mean webhook?"),
        ("webhook = 3\n", "1:1: webhook must be written as [webhook.NAME] tables"),
        ("[webhook]\na = 3\n", "1:1: webhook must be written as [webhook.NAME] tables"),
        ('[webhook."A b"]\nurl = "https://h/"\n', "1:1: 'A b' cannot be a name"),
        ("[webhook.a]\n", "1:1: url is missing; add url"),
        ("[webhook.a]\nurl = 3\n", "2:1: url must be text in quotes"),
        (HOOK + "timeout = 3\n", "3:1: unknown key 'timeout'; did you mean timeout_s?"),
        (HOOK + "timeout_s = 0\n", "3:1: timeout_s must be seconds, more than 0"),
        (HOOK + "timeout_s = nan\n", "3:1: timeout_s must be seconds"),
        (HOOK + "timeout_s = true\n", "3:1: timeout_s must be seconds"),
        (HOOK + "timeout_s = 101\n", "3:1: timeout_s must be seconds"),
        (HOOK + "events = []\n", "3:1: events must be a list of types"),
        (HOOK + 'events = "answer"\n', "3:1: events must be a list of types"),
        (HOOK + "max_chars = 0\n", "3:1: max_chars must be 1 or more"),
        (HOOK + "max_chars = 1.5\n", "3:1: max_chars must be a whole number"),
        (HOOK + "ca = 3\n", "3:1: ca must be text in quotes"),
        (HOOK + "headers = 3\n", "3:1: headers must be a table"),
        (HOOK + 'headers = { Authorization = "Bearer x" }\n', "3:13: header 'Authorization' would put a secret"),
        (HOOK + 'headers = { Host = "x" }\n', "3:13: header 'Host' is set by Rucher itself"),
        (HOOK + 'headers = { webhook-id = "x" }\n', "3:13: header 'webhook-id' is set by Rucher itself"),
        (HOOK + 'headers = { x = "a\\r\\nb: c" }\n', "3:13: header 'x' must be a name and a text"),
        (HOOK + 'headers = { "x y" = "a" }\n', "3:13: header 'x y' must be a name and a text"),
        ("[file.a]\n", "1:1: path is missing"),
        ('[file.a]\npath = "../x"\n', "2:1: path must name a file, without .."),
        ('[file.a]\npath = "x/"\n', "2:1: path must name a file"),
        ('[file.a]\npath = "rules.toml"\n', "2:1: this path belongs to Rucher itself"),
        ('[file.a]\npath = "state/rucher.db"\n', "2:1: this path belongs to Rucher itself"),
        ('[file.a]\npath = "./state/rucher.db"\n', "2:1: this path belongs to Rucher itself"),
        ('[file.a]\npath = "/hive/state/rucher.db"\n', "2:1: this path belongs to Rucher itself"),
        ('[file.a]\npath = "State/rucher.db"\n', "2:1: this path belongs to Rucher itself"),
        ('[file.a]\npath = "kernel/agents/x.md"\n', "2:1: this path belongs to Rucher itself"),
        ('[file.a]\npath = "x"\nformat = "csv"\n', "3:1: format must be jsonl or text"),
        ('[instance.a]\nurl = "https://h/"\n', "1:1: source is missing; add source"),
        ('[instance.a]\nurl = "https://h/"\nsource = "../x"\n', "3:1: '../x' cannot be the name of a source"),
        ('[instance.a]\nurl = "https://h/?x=1"\nsource = "x"\n', "2:1: url is the other instance's address"),
        ('[agent.scribe]\nat = "laptop"\n', '2:1: at must be "instance:NAME"'),
        ('[agent.scribe]\nat = "instance:laptop"\n', "2:1: there is no instance 'laptop'; none exist yet"),
        (GOOD.replace("agent.scribe", "agent.scrib"), "24:1: there is no agent 'scrib'; did you mean scribe?"),
        (GOOD.replace("instance:laptop", "instance:lapto"), "there is no instance 'lapto'; did you mean laptop?"),
        ("[webhook.a]\n[webhook.b]\n", '1:1: url is missing; add url = "https://..." (and 1 more problem)'),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_place_and_what_to_do(text: str, reason: str) -> None:
    with pytest.raises(BadInput) as refusal:
        read(text)
    told = str(refusal.value)
    assert told.startswith(f"{ROOT}/destinations.toml:")
    assert reason in told
    assert "\n" not in told


@pytest.mark.parametrize(
    "url",
    [
        "ftp://h/",
        "https://",
        "h",
        "https://h:x/",
        "https://[::1",
        "https://h /",
        "https://é/",
        "https://h/\x01",
        "http:///x",
    ],
)
def test_what_is_no_web_address_is_refused(url: str) -> None:
    with pytest.raises(BadInput, match=r":2:1: .*no web address|:2:\d+: not valid TOML"):
        read(f'[webhook.a]\nurl = "{url}"\n')


@pytest.mark.parametrize("url", ["https://ana:pw@h/", "https://@h/", "https://h/#x", "http://127.0.0.1@evil.example/"])
def test_an_address_that_holds_a_user_or_hides_its_host_is_refused(url: str) -> None:
    with pytest.raises(BadInput, match="no user, no password and no fragment"):
        read(f'[webhook.a]\nurl = "{url}"\n')


@pytest.mark.parametrize(
    "host", ["example.org", "10.0.0.1", "0.0.0.1", "localhost.example.org", "[::2]", "127.0.0.1.nip.io"]
)
def test_without_tls_only_this_machine_is_sent_to_unless_the_owner_says_so(host: str) -> None:
    with pytest.raises(BadInput, match="insecure = true"):
        read(f'[webhook.a]\nurl = "http://{host}/"\n')
    assert read(f'[webhook.a]\nurl = "http://{host}/"\ninsecure = true\n').webhooks


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9:80", "[::1]:80", "localhost:8080"])
def test_this_machine_needs_no_tls(host: str) -> None:
    assert read(f'[webhook.a]\nurl = "http://{host}/"\n').webhooks
