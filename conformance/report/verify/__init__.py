"""Whether a report is consistent with its evidence: derived again, offline."""
