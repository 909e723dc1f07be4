//! The engine without the world.
