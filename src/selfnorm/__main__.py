"""`python -m selfnorm`, which is also what torchrun starts."""

from selfnorm.cli import main

main()
