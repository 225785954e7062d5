"""`python -m rucher.cli` is `rucher`, for when the command is not on the path."""

from rucher.cli.main import main

if __name__ == "__main__":
    main()
