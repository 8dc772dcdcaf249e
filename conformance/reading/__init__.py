"""What an episode contains, read for the judges: pure functions; no rule of the protocol is weighed here.

decoded_message    one ext_proc message, decoded, and how sure that is
conversation       the messages of one exchange in order, and how its stream and waits ended
stream_direction   request or response: the data plane's messages, and which answers belong to them
stream_state       which answer belongs to which message, the first out of order, how the stream stopped
ordering           whether an answer is acceptable where it stands
destination        the destination as a data plane finds it in header and metadata
request_metadata   what the data plane tells the EPP: the subset, the endpoint that served
bodies             whether a body is still the same: bytes, JSON values, server-sent events
endpoints          `ip:port` and lists of it, as text
inference_request  whether a request is one that every EPP is expected to understand
"""
