"""What a callback may be, found before a budget is spent, and what it may raise."""

import functools

import pytest

import nadpvi as na
from nadpvi.callbacks import check_callback

CONFIG = na.DPVIConfig(num_steps=40, sampling_rate=0.5)
BUDGET = na.PrivacyBudget(epsilon=1.0, delta=1e-5)


def release(schema, table, callback, **more):
    model = na.models.LogisticRegression(outcome="y")
    return na.release(
        model, table, schema=schema, privacy=BUDGET, config=CONFIG, callback=callback, insecure_seed=1, **more
    )


@pytest.mark.parametrize("callback", [lambda: 1, lambda first, second: 1, lambda *, step: 1])
def test_one_that_does_not_take_a_step_is_refused_before_the_table_is_read(schema, callback):
    with pytest.raises(na.ArgumentError, match="callback must take one argument"):
        release(schema, "no such table.csv", callback)


@pytest.mark.parametrize("callback", [3, "print", [print]])
def test_what_is_no_function_is_refused(callback):
    with pytest.raises(na.ArgumentError, match="callback must be a function"):
        check_callback(callback)


@pytest.mark.parametrize(
    "callback", [None, print, lambda *steps: 1, functools.partial(print, end=""), [].append]
)
def test_others_pass(callback):
    check_callback(callback)


@pytest.mark.parametrize("error", [ValueError("enough"), SystemExit(3)], ids=["error", "exit"])
def test_whatever_it_raises_the_trace_is_kept_and_the_message_says_who_ended_the_run(schema, table, error):
    def stop(done):
        if done.num_done == 7:
            raise error

    with pytest.raises(na.RunInterrupted, match="after 7 of 40 steps: the callback raised") as caught:
        release(schema, table, stop)
    assert caught.value.release.num_steps == 7
    assert caught.value.__cause__ is error
