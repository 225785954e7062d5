"""The same work on other libraries, on bare drivers and on ours, one program each; `benchmarks.kernel` starts them.

The peers run in an environment of their own, `.venv-bench`, and import nothing of Rucher; only `ours` runs in the
project's.
"""
