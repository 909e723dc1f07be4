//! Items of a document that are services, and the evidence that they serve.

use std::time::Duration;

use dormer_profile::answer::FailureCode;
use dormer_profile::item::{Http, Service, SteadyService};
use tokio::time::Instant;

use super::Step;
use crate::faults::Fault;
use crate::host::computer::Host;
use crate::host::scm::{ScmError, ServiceState};
use crate::host::services::Role;

/// How long [`Fault::MarkedForDeletion`] lasts.
const MARKED: Duration = Duration::from_secs(60);
/// How long the script waits for a mark to go.
const MARKED_WAIT: Duration = Duration::from_secs(90);

impl Host {
    pub(super) async fn ensure_service(&self, what: &Service, apply: bool) -> Step {
        let found = self
            .state()
            .scm
            .get(&what.name)
            .map(|e| (e.config.clone(), e.state));
        let same = found
            .as_ref()
            .is_some_and(|(config, _)| same_config(config, what));
        let up = matches!(found, Some((_, ServiceState::Running)));
        if same && (up || !what.running) {
            return Step::Ok;
        }
        if !apply {
            return Step::Differs(
                match (same, &found) {
                    (_, None) => "is not there",
                    (true, Some(_)) => "is not running",
                    (false, Some(_)) => "is configured otherwise",
                }
                .into(),
            );
        }
        if let Err(step) = self.configure_service(what, found.is_some(), same).await {
            return step;
        }
        if !same {
            let how = if found.is_some() {
                "configured"
            } else {
                "made"
            };
            self.effect(&format!("service {} {how}", what.name));
            self.midway(how).await;
        }
        if !what.running {
            return Step::Changed("configured".into());
        }
        match Box::pin(self.start_service(&what.name)).await {
            Ok(()) | Err(ScmError::AlreadyRunning) => Step::Changed("started".into()),
            Err(error) => Step::Failed(failure_code(error), error.to_string()),
        }
    }

    async fn configure_service(&self, what: &Service, there: bool, same: bool) -> Result<(), Step> {
        if same {
            return Ok(());
        }
        self.pause(100, 400).await;
        if there {
            let _ = self.stop_service(&what.name).await;
            if let Some(entry) = self.state().scm.get_mut(&what.name) {
                entry.config = what.clone();
            }
            return Ok(());
        }
        if Role::of(&what.command) == Role::Containerd && self.strike(Fault::RebootInInstall) {
            let _ = self.state().scm.create(what.clone(), Instant::now());
            self.reboot_in(Duration::ZERO);
            return std::future::pending().await;
        }
        if self.strike(Fault::MarkedForDeletion) {
            let until = Instant::now() + self.context.pace.real(MARKED);
            self.state().scm.mark_for_deletion(&what.name, until);
        }
        self.create_service(what).await
    }

    async fn create_service(&self, what: &Service) -> Result<(), Step> {
        let mut waited = Duration::ZERO;
        loop {
            let made = self.state().scm.create(what.clone(), Instant::now());
            match made {
                Ok(()) | Err(ScmError::Exists) => return Ok(()),
                Err(ScmError::MarkedForDeletion) if waited < MARKED_WAIT => {
                    self.sleep(Duration::from_secs(2)).await;
                    waited += Duration::from_secs(2);
                }
                Err(error) => return Err(Step::Failed(failure_code(error), error.to_string())),
            }
        }
    }

    pub(super) async fn check_steady(&self, what: &SteadyService, apply: bool) -> Step {
        let pid = || {
            self.state()
                .scm
                .get(&what.service)
                .and_then(|entry| entry.pid)
        };
        let Some(before) = pid().filter(|_| self.state().scm.running(&what.service)) else {
            return evidence(
                apply,
                FailureCode::ServiceCrashed,
                format!("{} is not running", what.service),
            );
        };
        if apply {
            self.midway("waited for").await;
            self.sleep(Duration::from_millis(what.steady_ms)).await;
        }
        if pid() == Some(before) {
            return Step::Ok;
        }
        evidence(
            apply,
            FailureCode::ServiceCrashed,
            format!("{} changed its process", what.service),
        )
    }

    pub(super) async fn check_http(&self, what: &Http, apply: bool) -> Step {
        let limit = if apply {
            Duration::from_millis(what.wait_ms)
        } else {
            Duration::ZERO
        };
        let mut waited = Duration::ZERO;
        if apply {
            self.midway("waited for").await;
        }
        while !self.healthy(&what.url) {
            if waited >= limit {
                let said = format!("{} does not answer 200", what.url);
                self.restart_the_sick(apply).await;
                return evidence(apply, FailureCode::NotHealthy, said);
            }
            self.sleep(Duration::from_secs(1)).await;
            waited += Duration::from_secs(1);
        }
        Step::Ok
    }

    /// The service control manager's failure actions: a kubelet that does not serve dies and is stopped for the next
    /// attempt to start.
    async fn restart_the_sick(&self, apply: bool) {
        let sick: Vec<String> = {
            let state = self.state();
            let kubelets = state
                .scm
                .iter()
                .filter(|e| Role::of(&e.config.command) == Role::Kubelet);
            kubelets
                .filter(|e| !e.healthy)
                .map(|e| e.config.name.clone())
                .collect()
        };
        for name in sick {
            if apply {
                let _ = self.stop_service(&name).await;
            }
        }
    }
}

fn evidence(apply: bool, code: FailureCode, said: String) -> Step {
    if apply {
        Step::Failed(code, said)
    } else {
        Step::Differs(said)
    }
}

fn same_config(one: &Service, other: &Service) -> bool {
    one.command == other.command
        && one.depends == other.depends
        && one.start == other.start
        && one.display == other.display
        && one.description == other.description
        && one.failure == other.failure
        && one.environment == other.environment
        && one.priority == other.priority
}

fn failure_code(error: ScmError) -> FailureCode {
    match error {
        ScmError::Timeout => FailureCode::ServiceStartTimeout,
        ScmError::ProcessDied => FailureCode::ServiceCrashed,
        ScmError::DependencyFailed => FailureCode::DependencyFailed,
        ScmError::MarkedForDeletion => FailureCode::ServiceMarkedForDeletion,
        ScmError::FileNotFound => FailureCode::QuarantineSuspected,
        ScmError::DependentsRunning
        | ScmError::AlreadyRunning
        | ScmError::Disabled
        | ScmError::Missing
        | ScmError::NotActive
        | ScmError::Exists => FailureCode::ServiceConfigFailed,
    }
}
