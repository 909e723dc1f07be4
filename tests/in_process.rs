//! Several packages together in one process: the API, the console, the roles and telemetry over stores in memory.

mod api;
mod console;
mod embedded;
mod nats;
mod openapi;
mod site;
mod telemetry;
#[cfg(feature = "demo")]
mod why;
