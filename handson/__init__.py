"""What the exercises import: data, models, distributed set-up, reports, and the PBS of a machine that has none."""

from handson import chosen_device

chosen_device.choose()
