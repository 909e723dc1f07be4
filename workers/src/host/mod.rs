//! What a task does on a Windows host: probe, converge, plan, reboot, tear down.

pub mod cluster;
