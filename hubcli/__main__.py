"""`python -m hubcli`: the same as `hub`."""

from hubcli.cli import main

if __name__ == "__main__":
    main()
