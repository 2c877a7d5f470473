"""Reports of finished runs: read the folders, group them by seed, compare, write tables and a page.

Needs neither torch nor a model: everything comes from what runs have left.
"""

from train.reports.page import write_run_page

__all__ = ["write_run_page"]
