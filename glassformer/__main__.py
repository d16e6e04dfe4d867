"""`python3 -m glassformer`: the command line, straight from a checkout."""

from glassformer.cli.main import main

if __name__ == "__main__":
    main()
