"""Code that sees records, or that makes what may be released from them. Nothing public imports it."""
