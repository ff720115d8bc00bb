"""A library that cannot be imported, as with a torch that lacks what it imports."""

raise ImportError("No module named 'torch.what_only_another_version_has'")
