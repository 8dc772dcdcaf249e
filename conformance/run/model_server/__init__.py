"""Role model-server: a model server under test, asked and scraped by the suite itself.

runner.py   one server, and the gate
target.py   the server itself: started or reached
client.py   its API and its page of metrics, over httpx, every answer bounded
requests.py what is asked
load.py     requests that are in flight together
scraper.py  its page of metrics, read like an EPP does, into the log
execute.py  the steps of scenarios
"""
