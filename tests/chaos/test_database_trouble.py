"""PostgreSQL is restarted, killed, cut off in mid-commit and replaced by its standby, with much work in flight."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.chaos.crew import PATIENCE_S, Crew, crew
from tests.fakes.cutter import Cut, Cutter
from tests.fakes.hive import until
from tests.fakes.postgres import PASSWORD, ROLE, Server, Standby, shared

TEAM = ("a", "b")


def load(runs: int) -> dict[str, str]:
    return {f"run{number}": "load" for number in range(runs)}


def work_goes_on(workers: Crew, further: int) -> None:
    """Return when there were so many further effects."""
    before = sum(workers.outside.counts().values())
    until(lambda: sum(workers.outside.counts().values()) >= before + further, "work does not go on", PATIENCE_S)


def survives(workers: Crew, trouble: Callable[[], object], times: int, store: str = "") -> None:
    processes = [workers.start(name, store=store) for name in TEAM]
    for _ in range(times):
        work_goes_on(workers, 25)
        trouble()
    workers.finish(*processes)


@pytest.mark.parametrize("how", ["restarted", "killed"])
def test_work_survives_a_server_that_comes_back(tmp_path: Path, how: str) -> None:
    with Server() as server, crew(tmp_path, server.new_database(), load(30)) as workers:

        def trouble() -> None:
            if how == "restarted":
                server.restart()
            else:
                server.kill()
                server.start()

        survives(workers, trouble, 2)
        workers.demand_whole(repeats=2)


@pytest.mark.chaos_long
def test_work_survives_a_server_that_is_killed_again_and_again(tmp_path: Path) -> None:
    with Server() as server, crew(tmp_path, server.new_database(), load(100)) as workers:

        def trouble() -> None:
            server.kill()
            server.start()

        survives(workers, trouble, 12)
        workers.demand_whole(repeats=12)


@pytest.mark.chaos_long
def test_work_waits_for_a_server_that_stays_away_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    with Server() as server, crew(tmp_path, server.new_database(), load(40)) as workers:

        def trouble() -> None:
            server.stop()
            told = len(workers.outside.lines("trouble"))
            until(lambda: len(workers.outside.lines("trouble")) > told, "nobody was told", PATIENCE_S)
            server.start()

        survives(workers, trouble, 2)
        assert all("cannot be used just now" in " ".join(words) for words in workers.outside.lines("trouble"))
        workers.demand_whole(repeats=2)


def test_connections_cut_in_mid_commit_neither_lose_nor_double_anything(tmp_path: Path) -> None:
    server = shared()
    url = server.new_database()
    with Cutter(server.port) as cutter, crew(tmp_path, url, load(80)) as workers:
        cuts = iter([Cut.BEFORE, Cut.AFTER, Cut.RACING, Cut.LATE] * 2)

        def trouble() -> None:
            before = cutter.cuts
            cutter.cut_at_commit(next(cuts))
            until(lambda: cutter.cuts > before, "nothing was cut", PATIENCE_S)

        database = url.split("/")[-1].split("?")[0]
        survives(workers, trouble, 8, store=server.url(database, tcp=True, port=cutter.port))
        cutter.release()
        workers.demand_whole(repeats=0)


def test_a_promoted_standby_has_all_that_was_acknowledged(tmp_path: Path) -> None:
    with Server() as primary, Standby(primary) as standby:
        database = primary.new_database().split("/")[-1].split("?")[0]
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        url = f"postgresql://{ROLE}:{quote(PASSWORD, safe='')}@{hosts}/{database}?target_session_attrs=read-write"
        with crew(tmp_path, url, load(30)) as workers:

            def trouble() -> None:
                primary.kill()
                standby.promote()
                standby.configure("synchronous_standby_names", "")

            survives(workers, trouble, 1)
            workers.demand_whole(repeats=1)
