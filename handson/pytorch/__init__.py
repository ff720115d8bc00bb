"""What the PyTorch track of the exercises imports: networks, devices, the opening lines, batches."""

from handson.profiling import recorders

recorders.begin("pytorch")
