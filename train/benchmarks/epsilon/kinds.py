"""The paper's three kinds of models, told by the p-values of the classes of compounds.

The paper names the kinds and no rule. This one gives each of its models the kind that it has there.
"""

from __future__ import annotations

from collections.abc import Mapping

SIGNIFICANT = 0.05
WEAK = 0.10  # at this p of C, as S-GPT's .100, a model is no longer called human-aligned

KINDS = {
    "anti-compositional": "even compositional compounds stay apart from rewordings",
    "human-aligned": "not or partly compositional compounds stay apart from rewordings, others do not",
    "compositionally-inclined": "compounds of no class stay apart from rewordings",
}


def kind_of(p_values: Mapping[str, float]) -> str:
    """The kind of a model.

    Anti-compositional if C stays apart from its rewordings (p ≤ 0.10), else human-aligned if PC or NC does
    (p < 0.05), else compositionally-inclined.

    Args:
        p_values: of the classes C, PC and NC.
    """
    if p_values["C"] <= WEAK:
        return "anti-compositional"
    if min(p_values["PC"], p_values["NC"]) < SIGNIFICANT:
        return "human-aligned"
    return "compositionally-inclined"
