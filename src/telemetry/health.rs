//! Liveness and readiness of this process, by role, and their two endpoints.

use axum::{Json, Router, extract::State, http::StatusCode, routing::get};
use dormer_proto::lock::Locked as _;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

/// Whether a role of this process works, as `/readyz` and `dormer_role_up` report it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", content = "why", rename_all = "lowercase")]
pub enum RoleStatus {
    /// It works.
    Up,
    /// It works but lacks something that people must provide: what.
    Hindered(String),
    /// It does not work yet, or not at present: why.
    Waiting(String),
    /// It has ended for the rest of this process: why.
    Ended(String),
}

/// Roles of this process, each with its status.
#[derive(Debug, Default)]
pub struct Health {
    /// Lock held for one map operation, never across an await.
    roles: Mutex<BTreeMap<&'static str, RoleStatus>>,
}

impl Health {
    fn roles(&self) -> MutexGuard<'_, BTreeMap<&'static str, RoleStatus>> {
        self.roles.locked()
    }

    /// Sets the status of a role. A role that has ended stays ended.
    pub fn set(&self, role: &'static str, status: RoleStatus) {
        let mut roles = self.roles();
        let before = roles.get(role);
        if before == Some(&status) || matches!(before, Some(RoleStatus::Ended(_))) {
            return;
        }
        match &status {
            RoleStatus::Up => tracing::info!(role, "up"),
            RoleStatus::Hindered(why) => tracing::warn!(role, why, "up, but hindered"),
            RoleStatus::Waiting(why) => tracing::info!(role, why, "waiting"),
            RoleStatus::Ended(why) => tracing::error!(role, why, "ended"),
        }
        roles.insert(role, status);
    }

    /// Whether every role works. A hindered role counts as working, because people need the console to help it.
    pub fn ready(&self) -> bool {
        let roles = self.roles();
        let works =
            |status: &RoleStatus| matches!(status, RoleStatus::Up | RoleStatus::Hindered(_));
        !roles.is_empty() && roles.values().all(works)
    }

    /// Whether no role has ended. Otherwise the process should be restarted.
    pub fn alive(&self) -> bool {
        !self
            .roles()
            .values()
            .any(|status| matches!(status, RoleStatus::Ended(_)))
    }

    /// Status of each role.
    pub fn all(&self) -> BTreeMap<&'static str, RoleStatus> {
        self.roles().clone()
    }
}

/// `GET /healthz` (alive) and `GET /readyz` (ready): 200 or 503, with each role's status as JSON.
pub fn router(health: Arc<Health>) -> Router {
    Router::new()
        .route(
            "/healthz",
            get(|State(health): State<Arc<Health>>| async move { answer(health.alive(), &health) }),
        )
        .route(
            "/readyz",
            get(|State(health): State<Arc<Health>>| async move { answer(health.ready(), &health) }),
        )
        .with_state(health)
}

fn answer(good: bool, health: &Health) -> (StatusCode, Json<BTreeMap<&'static str, RoleStatus>>) {
    let status = if good {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(health.all()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_when_every_role_is_up_and_what_ended_stays_so() {
        let health = Health::default();
        assert!(!health.ready(), "nothing is up yet");
        health.set("engine", RoleStatus::Up);
        health.set("watcher", RoleStatus::Waiting("the first list".into()));
        assert!(health.alive() && !health.ready());
        health.set("watcher", RoleStatus::Up);
        assert!(health.ready());
        health.set(
            "worker",
            RoleStatus::Hindered("the key is encrypted".into()),
        );
        assert!(health.alive() && health.ready());
        health.set("engine", RoleStatus::Ended("the store is damaged".into()));
        health.set("engine", RoleStatus::Up);
        assert!(!health.alive() && !health.ready());
    }
}
