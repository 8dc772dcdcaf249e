"""Running: the engine thread, the pool and its settling, the plan, and the execution of scenarios into episodes."""
