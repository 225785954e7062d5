"""The mailbox's own errors, for whoever holds one; the package knows nothing of the rest of Rucher.

Each message is one line that says which file, what is wrong with it and what to do.
"""


class MailboxError(Exception):
    """Root of the mailbox's errors."""


class MailboxCorrupt(MailboxError):
    """A file is not what its writer may have written, or cannot be written by its writer: only this session stops."""


class MailboxUnavailable(MailboxError):
    """Nothing was read or written, and it may work later: the file is locked, or the disk is full."""


class HotJournal(MailboxUnavailable):
    """A runner died inside a commit of outbound.db: only a new runner may undo it, and then the host can read again."""
