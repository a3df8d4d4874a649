"""What a budget buys, before it is spent and without reading data."""
