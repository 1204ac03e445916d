"""A second implementation of what Penstock puts on the wire, written from proto/PROTOCOL.md. See tests/peer.py."""
