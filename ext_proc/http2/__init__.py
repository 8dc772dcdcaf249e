"""HTTP/2 as a fake data plane and a fake endpoint picker need it: every byte under control, every frame seen.

`connection.Connection` is the protocol without I/O; `transport.Transport` runs it on asyncio; `dial` and `tls` get
there and say why not. Nothing here knows gRPC.
"""
