"""Reports of finished runs: frames of runs, scores and items; groups, comparisons, tables, charts, a page.

Needs neither torch nor a model: everything comes from what runs have left.
"""
