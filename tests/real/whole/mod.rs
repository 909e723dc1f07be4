//! All of dormer from end to end, with one process for each role: the same scenarios on a real API server and on the
//! simulated one. On the real one the roles have the accounts of `deploy/rbac.yaml` with the shipped rules. Kubelets
//! join by TLS bootstrap, the real controller manager signs, the real scheduler places pods, the real disruption
//! controller computes budgets, and evictions are real. Machine controllers, cloud and hosts are simulated on both.

mod backup;
mod crew;
mod flood;
pub(crate) mod ground;
mod held;
mod kinds;
mod plain;
mod pool;
mod scenarios;
mod ssh_key;
pub(crate) mod uninstall;
