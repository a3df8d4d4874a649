"""Stan engines behind one interface: CmdStan through cmdstanpy, and the embedded interpreter stanli."""
