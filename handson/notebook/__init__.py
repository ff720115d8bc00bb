"""What notebooks import: measurements of their own, a student's runs, and figures."""
