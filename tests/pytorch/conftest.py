"""These tests are about virtual GPUs, on machines that have real ones too. Processes that tests start inherit this."""

import os

os.environ["CUDA_VISIBLE_DEVICES"] = ""
