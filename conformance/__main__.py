"""`python -m conformance` is `epp-conformance`."""

from conformance.cli import main

main()
