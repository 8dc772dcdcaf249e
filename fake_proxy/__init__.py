"""Be a data plane towards an EPP: Envoy, message for message.

`machine.Machine` is Envoy without I/O: its two `direction.Direction`s hold the body modes, `router.Router` the choice
of endpoints and the retries. `exchange.run_exchange` drives one over a real ext_proc stream and real or scripted model
servers, and writes the record. `client.HttpRequest` is what the client asks, `config.ProxyConfig` how the data plane
is set up, `stimulus.Stimulus` where it departs from Envoy on purpose.
"""
