"""Small mutations of a Python program's source, and a way to run the program with one of them; no copy of it is made.

    mutant.py     a mutant: one edit of one module, its name, its diff          helpers.py   what mutated source calls
    edits.py      the edits that the operators make in a module                 runner.py    import hooks: mutate, probe
    operators.py  the operators: what becomes of an expression or a statement   __main__.py  the command that runs it

`python -m conformance.mutation '{"mutate": …}' PROGRAM ARGUMENT…` runs `python -m PROGRAM ARGUMENT…` with the mutation.
Nothing here imports the program in the process of the suite, and nothing of the suite is imported here: each mutant
starts as fast as the program does.
"""
