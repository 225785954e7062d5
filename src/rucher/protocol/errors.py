"""Every error that crosses a package, named by its consequence for whoever catches it."""


class RucherError(Exception):
    """Root of all errors that Rucher raises on purpose; its text is one line fit for the person who meets it."""


class BadInput(RucherError):
    """What a person or a file said cannot be used; nothing was done. The command line exits with 2."""


class Retryable(RucherError):
    """It did not happen and may work later: try again, after `retry_after` seconds where known."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Permanent(RucherError):
    """It did not happen and will not, however often it is tried."""


class TooRich(Permanent):
    """It did not happen as it is, and may without `without`: `format`, for plain text, or the name of one image."""

    def __init__(self, message: str, without: str) -> None:
        super().__init__(message)
        self.without = without


class Uncertain(RucherError):
    """It may or may not have happened, and nothing can tell: the owner decides, it is never tried again blindly."""


class Exhausted(RucherError):
    """A budget does not cover it; nothing was done, and nothing was spent."""


class Denied(RucherError):
    """It is not allowed; nothing was done."""


class Fenced(RucherError):
    """Another owner has taken this run: stop at once, nothing of yours was written."""


class Diverged(Permanent):
    """A replay asked for something else than what was recorded under the same step key."""


class Corrupt(RucherError):
    """Stored data is not what was written; whoever owns it stops and says so, everything else goes on."""


class Suspended(RucherError):
    """The run goes no further just now: it is parked, or about to be ended; nothing holds its place in memory."""

    def __init__(self, run_id: str, step: str, reason: str) -> None:
        super().__init__(reason)
        self.run_id = run_id
        self.step = step
