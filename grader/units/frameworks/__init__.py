"""The same training in the other systems: TensorFlow's strategies, Lightning, Accelerate, DataParallel."""
