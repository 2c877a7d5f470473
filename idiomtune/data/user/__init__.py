"""Users' own tables, from the file to an example for training.

:mod:`source` finds the tables and yields rows; :mod:`table` reads a row by the roles of its columns
(:mod:`forms`, `roles.tsv`); :mod:`examples` makes an example of it, and asks about columns without a role;
:mod:`text_table` keeps all examples; :mod:`load` splits them.
"""
