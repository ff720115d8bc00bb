"""These tests are about profiles made without a GPU, on machines that have one too. Processes that tests start inherit
this."""

import os

os.environ["CUDA_VISIBLE_DEVICES"] = ""
