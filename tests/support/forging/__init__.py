"""Reports of real targets, and what a forger might do to them."""
