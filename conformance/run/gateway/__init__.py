"""Role data-plane: a gateway under test among the suite's own EPPs, model servers and HTTP client.

runner.py   one gateway with its surroundings, and the gate
target.py   the gateway itself: started or reached
pods.py     the model servers behind it
pickers.py  the scripted EPPs that it asks
execute.py  the steps of scenarios
"""
