"""The package that the exercises import: data, models, distributed set-up, reports, and a PBS for machines without
one."""

from handson import chosen_device

chosen_device.choose()
