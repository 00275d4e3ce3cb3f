"""selfnorm demo"""

from selfnorm.cli.options import Debug, Json


def demo(json: Json = False, debug: Debug = False) -> None:
    """Train."""
