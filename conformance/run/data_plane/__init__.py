"""The data plane of a run: the fake proxy, or a real Envoy (`envoy/`), behind one interface.

plane      the interface, and the fake proxy behind it
stimuli    from a scenario's exchange to what the data plane is asked
replies    from a scenario's reply to the model server that plays it
malformed  bytes that no data plane sends
"""
