"""How much is tried where tests make up what they put in, and values that have broken programs before.

By default a little, and the same each time. With `FUZZ_EXAMPLES=5000` in the environment, a test file that
imports this draws so many, anew each time.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

_EXAMPLES = os.environ.get("FUZZ_EXAMPLES")

FUZZED = settings(
    max_examples=int(_EXAMPLES or 15),
    derandomize=_EXAMPLES is None,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NASTY_TEXTS = [
    *("", " ", "\t", "\u00a0", "\u2028", "\x00", "\ufeff", "NaN", "None", "null", "inf", "-1", "1e999"),
    *("1_0", "[", "]", "{[]}", "[[[[", "['a'", "[True]", "[" * 500, "-" * 5000 + "1", "'", '"', '""', "\\"),
    *("%s", "\\n", "{query}", "{0}", "---", "ﬀ", "İ", "e\u0301", "\u202e", "🜚", "../..", "/", "~nobody-here"),
    "a" * 5000,
]
TEXTS = st.one_of(st.sampled_from(NASTY_TEXTS), st.text(max_size=12))
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 10**30, -(10**30), 0.0, -0.5, 1.5, 1e308, 1e-308),
    *(float("nan"), float("inf"), float("-inf"), "", " ", "nonsense", [], [[]], [None], [""], {}, {"a": 1}),
]
