"""What can be named in a configuration: benchmarks, objectives, data sets. Each is declared once.

A declaration says all that the rest of the program has to know: options, names of scores, tables, licences.
Ours are found by name; a package of the user's own brings more, named by the option `extensions`.
Declarations import nothing heavy, so that a slip in a configuration is told at once.
"""
