"""Resource limits of the runner and of every process it starts: the last resort where there is no control group.

Called once, before the first call is taken; a limit cannot be raised again afterwards.
"""

import resource
from collections.abc import Mapping

_KINDS = {
    "processes": resource.RLIMIT_NPROC,
    "memory_bytes": resource.RLIMIT_AS,
    "file_bytes": resource.RLIMIT_FSIZE,
    "open_files": resource.RLIMIT_NOFILE,
    "core_bytes": resource.RLIMIT_CORE,
}


def apply(limits: Mapping[str, int]) -> None:
    """Lower each named limit; one that the machine holds lower already stays."""
    for name, wanted in limits.items():
        kind = _KINDS[name]
        _, hard = resource.getrlimit(kind)
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (value, value))
