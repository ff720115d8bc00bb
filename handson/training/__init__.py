"""What training scripts of both tracks import: data, options, results, and what they print."""
