"""Role epp: an endpoint picker under test, with its pool, the discovery that it follows, and the log of it all.

runner      one target with everything around it, and the gate
execute     one scenario: its steps, in order, into an episode
target      the endpoint picker itself: started or reached, watched, restarted
pool        model servers and their standing, changed on request and settled
members     the members of that pool
discovery   how the target learns of its pool: `kubernetes`, a watched file, or `fixed` endpoints
patience    how long an answer is waited for
polls       the exchanges made while a pool settles
"""
