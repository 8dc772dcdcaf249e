"""Mutation tests of the suite: the reference EPP with each of its faults, and with its conforming variants; and
a gateway, ours and a real Envoy, with each of theirs.

    deviation.py  a fault or a variant, as its program lists it           workers.py  trials in several processes
    trial.py      one of them run against the suite, and what came of it  table.py    the page of the docs
    record.py     the scenario instances that noticed each fault
    gateway.py, model_server.py  the profile of a gateway, or of a model server, with a fault

    mutants.py       the mutants of the reference EPP                  survey.py        which are tried, what came of it
    mutant_trial.py  one of them run until it is noticed               mutants_page.py  their page of the docs
    equivalents.py   the record of those that break nothing

A fault declares by hand which requirement it breaks. Run against the suite, exactly that one (and those it declares to
break as well) must be accused: nothing missed, nothing accused wrongly. A variant must not be accused at all. A mutant
declares nothing: the suite must tell it from a right EPP, or it is on record as breaking no rule.
"""
