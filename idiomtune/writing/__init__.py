"""Data sets for anybody's idioms, in IdioLink's form, written and judged by language models.

The construction is that of Hashiloni et al. 2026, arXiv 2605.22247, section 3.2; prompts and rules are the
project's own.
"""
