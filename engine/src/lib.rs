//! The engine in the world: its loop, the ports and their adapters.
