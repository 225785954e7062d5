"""Our kernel again, with steps whose intention is committed before they are acted on: see `ours`."""

import uvloop

from benchmarks.peers.ours import main
from benchmarks.peers.work import Work, report
from rucher.protocol.conversation import Effect

if __name__ == "__main__":
    report(uvloop.run(main(Work.read("sqlite", "postgres"), Effect.IDEMPOTENT_WRITE)))
