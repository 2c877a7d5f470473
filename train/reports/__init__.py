"""Reports of finished runs: read the folders, group them by seed, compare, write tables and a page.

Needs neither torch nor a model: everything comes from what runs have left.
"""

from train.reports.last_screen import show_finished_run

__all__ = ["show_finished_run"]
