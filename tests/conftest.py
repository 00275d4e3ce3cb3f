"""Two workers on two cores: one thread each, here and in the processes that tests start."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by PyTorch when it is first imported
