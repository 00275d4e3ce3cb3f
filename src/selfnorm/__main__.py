"""`python -m selfnorm`, which is also what torchrun starts."""

from selfnorm.cli import main

if __name__ == "__main__":  # processes that are started from here import this file again
    main()
