"""Tests of the profile, which lists the operations that take most of the time of the steps."""

from __future__ import annotations

import re
import time

import tensorflow as tf

from trainkit.tensorflow.profile import SKIPPED, Profile

STEPS = 2


def test_the_largest_operation_is_named_with_its_share() -> None:
    step = tf.function(lambda one: tf.reduce_sum(tf.nn.softplus(tf.linalg.matmul(one, one))))
    given, profile, said = tf.ones((1600, 1600)), Profile(STEPS), []
    for _ in range(SKIPPED + STEPS + 2):
        profile.before()
        begun = time.perf_counter()
        step(given).numpy()
        seconds = time.perf_counter() - begun
        said.append(profile.after(seconds, seconds / 4, 0.0))
    (told,) = [one for one in said if one]
    assert said.index(told) == SKIPPED + STEPS - 1
    first, *rows = told.splitlines()
    assert re.fullmatch(r"[\d.]+ ms a step, of which waiting for data 25\.0%, communication 0\.0%",
                        first)
    assert "MatMul" in rows[0]
    assert 99 < sum(float(row.split("%")[0]) for row in rows) < 101


def test_without_steps_it_does_nothing() -> None:
    profile = Profile(0)
    for _ in range(SKIPPED + 2):
        profile.before()
        assert not profile.is_on
        assert profile.after(1.0, 0.0, 0.0) is None
