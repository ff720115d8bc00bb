"""The modules that training scripts of both tracks import: data, options, results, and the output."""
