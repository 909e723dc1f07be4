//! The HTTP API under `/api/v1`: what dormer knows, and what people may ask of it, as JSON.

mod error;
mod shelf;
mod shown;
mod story;

pub(crate) use error::ApiError;
