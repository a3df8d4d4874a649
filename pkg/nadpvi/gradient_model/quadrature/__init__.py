"""The collapsed density of each coordinate integrated to a stated error: masses, moments and draws."""
