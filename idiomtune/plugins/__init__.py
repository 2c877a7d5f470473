"""Declarations of benchmarks, objectives and data sets: all that a configuration can name.

A declaration says all that the rest of the program has to know: options, names of scores, tables, licences.
Ours are found by name; a package of the user's own brings more, named by the option `extensions`.
Declarations import nothing heavy, so that configuration errors are reported immediately.
"""
