"""Role epp: an endpoint picker under test, with its pool, the discovery that it follows, and the log of it all.

runner      one target with everything around it
execute     the steps of scenarios
gate        when a target is ready for scenarios, and what is said if it never is
target      the endpoint picker itself: started or reached, watched, restarted
pool        model servers and their standing, changed on request and settled
loads       what pods' metrics show
members     the members of that pool
discovery   how the target learns of its pool: `kubernetes`, a watched file, or `fixed` endpoints
patience    how long an answer is waited for
polls       the exchanges made while a pool settles
early       accusations of workers that were not polled, and have time to follow
"""
