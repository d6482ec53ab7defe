"""`python -m flightrec` is the command line."""

from flightrec.cli import main

if __name__ == "__main__":
    main()
