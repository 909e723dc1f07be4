//! What this worker can install: profiles and payloads, and the versions they make.
