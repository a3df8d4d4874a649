"""Privacy: accounting, the guarantee on record, exact noise, sampling and the ledger."""
