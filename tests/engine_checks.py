"""What every test of a Stan engine asks of an error message."""

import re


def assert_short(error, *patterns):
    text = str(error.value)
    assert len(text.splitlines()) <= 15, text
    assert max(map(len, text.splitlines())) < 500
    assert "Traceback" not in text
    for pattern in patterns:
        assert re.search(pattern, text), f"{pattern!r} is not in {text!r}"
