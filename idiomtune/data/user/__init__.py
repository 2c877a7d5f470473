"""Users' own tables, from the file to an example for training.

:mod:`source` finds the tables and yields rows; :mod:`table` reads a row by the roles of its columns
(:mod:`forms`, `roles.tsv`); :mod:`examples` makes an example of it, and asks where it is not certain what a
column means (:mod:`columns`); :mod:`store` keeps all examples; :mod:`load` splits them.
"""
