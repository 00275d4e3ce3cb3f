"""torchrun, without its pages of traceback: what went wrong has been said by the process that knows it.

    python -m selfnorm.distributed.agent END [torchrun's arguments] -m selfnorm train …

The file END tells why in words, if no process has; see supervisor.py.
"""

import ctypes
import logging
import signal
import sys
from contextlib import suppress
from pathlib import Path

from selfnorm.distributed import LOST


def main() -> int:
    with suppress(AttributeError):  # where there is such a thing as PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # without a supervisor the ranks save and end
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    logging.disable(logging.CRITICAL)
    end = Path(sys.argv[1])
    try:
        run(parse_args(sys.argv[2:]))
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode > 0:
            return failure.exitcode
        end.write_text(f"process {rank} was ended by {signal.Signals(-failure.exitcode).name}")
        return 128 - failure.exitcode
    except SignalException as error:
        return 128 + error.sigval
    except (RuntimeError, OSError) as error:  # the machines did not meet
        end.write_text(f"the processes could not be started together ({str(error).splitlines()[0][:120]})")
        return LOST
    return 0


if __name__ == "__main__":
    sys.exit(main())
