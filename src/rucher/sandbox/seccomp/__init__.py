"""The system calls that a level 1 sandbox may not make, as the bytes the kernel loads, one file an architecture."""
