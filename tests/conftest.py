"""Two workers on two cores: one thread each, here and in the processes that tests start; and no clock in the tests."""

import os

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by PyTorch when it is first imported
if not os.path.exists("/dev/nvidia0"):
    os.environ.setdefault("TRITON_INTERPRET", "1")  # kernels run on the CPU, in float32

settings.register_profile(
    "selfnorm", deadline=None, derandomize=True
)  # a busy machine is no failure; CI repeats itself
settings.load_profile("selfnorm")
