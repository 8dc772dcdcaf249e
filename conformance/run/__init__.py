"""Runs scenarios against targets, and judges what happened.

session         everything that is run against one target: plans, workers, results
workers         several workers that share the work of all versions
worker          one target after the other, in this process or in another
batches         one batch on one target, judged; who is to blame when the target dies or hangs
execution       one piece of work: its steps in order, into an episode
target_runner   a target with everything around it: what a role implements
roles           which runner and which steps belong to a role
child_process   a process of the suite: commands in, answers out
conversations   generated exchanges

capture, watched, limits, barrier, served, engine   what these are made of
data_plane/     what carries exchanges to an endpoint picker: the fake Envoy, or a real one
epp/ gateway/   the roles

A further role is a folder beside `epp/` and `gateway/` with

* a `TargetRunner`: `start` (the target, its surroundings, the gate), `restart_target`, `close`, `target`; and,
  where the defaults do not fit, `at_a_time`, `prepare` (the pool of a batch), `responds`, `check`, `reads_no_metrics`,
  `strays`;
* an `Execution`: `actions` (a coroutine for each kind of step), `endpoints` (what references stand for), `spoilt` (what
  a late loop makes worthless); `begin`, `end` and `context` where the role has more to say;

a case for it in `roles.runner_of`, a profile with its line in `targets.resolve.PROFILES`, `Traits` in `planning/` with
its line in `conformance.roles.ROLES`, its steps in `scenario.schema.ACTIONS_OF`, and its rules in a folder of
`judges/`.
"""
