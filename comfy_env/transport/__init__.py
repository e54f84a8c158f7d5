"""The host's end of a worker's lanes: endpoint, handshake, frames, values, and the conversation on them."""
