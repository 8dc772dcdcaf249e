"""Load: many exchanges at a time while the pool changes, and every one of them judged.

    shape.py         a kind of request, made ready        steps.py      what can happen, and what is to be done then
    rehearsal.py     one exchange in the real machine     memory.py     the trie of exchanges seen before
    model_server.py  what the model server does in it     judgement.py  verdicts of whole exchanges
    moments.py       what the pool was, and when          exchange.py   one exchange on a real stream
    traffic.py       all that are under way               arrivals.py   when requests begin
    mix.py           the file of a load                   churn.py      the pool, changed on a schedule
    figures.py       how long things took                 run.py        a run
    document.py      its result                           vitals.py     memory and descriptors of processes
    settings.py      what is to be done, and its bounds   totals.py     numbers of one process or of several
    course.py        what each second was like            page.py       the result as HTML
    generators.py    the share of one of several          many.py       a run whose requests they make
    exposition.py    metrics while it runs                shared_moments.py  what the pool was, for all of them
    trouble.py       what is to go wrong, and when        disturber.py  what makes it go wrong
    recovery.py      what came of that                    examples.py   exchanges that show findings
    locust_master.py what workers connect to              locust_user.py  a share, on a worker
    wire.py          what these say to each other         remote_generator.py  the process that makes the share
    bounds.py        how much may be asked for

An exchange walks the trie: an edge is what came from the EPP, with its own request id masked; a node is what the
machine does next; a leaf holds the verdict. What was not seen before is done by the real machine and judged by the real
judges, and becomes a path. So every exchange is judged, at the price of a look-up.
"""
