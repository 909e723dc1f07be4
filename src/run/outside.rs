//! External resources of `dormer run`: the Kubernetes API, profile layers on disk, and signals.

use crate::config::Config;
use crate::usage_error::checked;
use anyhow::Context;
use dormer_profile::layers::Layer;
use dormer_views::kubeconfig::no_kubeconfig;
use dormer_workers::catalog::Catalog;
use kube::{
    Client,
    config::{KubeConfigOptions, Kubeconfig},
};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Time limit for connecting to the API server.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Time within which repeated signals count as one.
const ECHO: Duration = Duration::from_secs(1);

/// Mistake where neither a kubeconfig nor a pod's account can be used.
fn nothing_found(why: impl std::fmt::Display) -> anyhow::Error {
    let named = std::env::var("KUBECONFIG").ok();
    anyhow::anyhow!(no_kubeconfig(&why.to_string(), named.as_deref()))
}

/// Client of the Kubernetes API, from the configuration.
///
/// # Errors
/// There is no kubeconfig and no pod account, or it cannot be used.
pub(crate) async fn client(config: &Config) -> anyhow::Result<Client> {
    let options = KubeConfigOptions {
        context: config.context.clone(),
        ..Default::default()
    };
    let found = match &config.kubeconfig {
        Some(path) => {
            let named = || format!("--kubeconfig {}", path.display());
            checked(std::fs::metadata(path).with_context(named))?;
            let file = checked(Kubeconfig::read_from(path).with_context(named))?;
            kube::Config::from_custom_kubeconfig(file, &options).await?
        }
        None if config.context.is_some() => kube::Config::from_kubeconfig(&options).await?,
        None => checked(kube::Config::infer().await.map_err(nothing_found))?,
    };
    let mut found = found;
    // The engine and the watcher retry. A client that retries by itself would hide failures.
    found.default_retry = false;
    found.connect_timeout = Some(CONNECT_MAX);
    Ok(Client::try_from(found)?)
}

/// Catalog of the built-in profiles with the configured layers.
///
/// # Errors
/// A layer is invalid: file, line and reason.
pub(crate) fn catalog(config: &Config) -> anyhow::Result<Catalog> {
    let mut layers = Vec::with_capacity(config.layers.len());
    for path in &config.layers {
        let named = || format!("--profile-layer {}", path.display());
        let text = checked(std::fs::read_to_string(path).with_context(named))?;
        layers.push(Layer::parse(&path.display().to_string(), &text)?);
    }
    Ok(Catalog::new(&layers)?)
}

/// SIGTERM and SIGINT, from the moment of [`StopSignals::listen`]: one that comes while nothing waits is not lost.
#[derive(Debug)]
pub struct StopSignals {
    term: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Begins to listen. From now on neither signal ends the process by itself.
    ///
    /// # Errors
    /// Signal handlers cannot be installed.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for a signal, and returns its name. A wait that was given up loses none.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// Waits for a second signal. It ignores an echo of the first one: a terminal or a supervisor often signals a
    /// process and its group at once.
    ///
    /// # Errors
    /// Signal handlers cannot be installed.
    pub(crate) async fn again() -> std::io::Result<&'static str> {
        tokio::time::sleep(ECHO).await;
        Ok(Self::listen()?.next().await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{process::Command, task::Poll};

    #[tokio::test]
    async fn a_signal_that_comes_while_nothing_waits_is_not_lost() {
        let mut signals = StopSignals::listen().unwrap();
        // A wait that another branch of a select ended.
        let first = std::future::poll_fn(|context| {
            let waiting = std::pin::pin!(signals.next());
            Poll::Ready(waiting.poll(context).is_pending())
        });
        assert!(first.await);
        let process = std::process::id().to_string();
        let sent = Command::new("kill").args(["-s", "TERM", &process]).status();
        assert!(sent.unwrap().success());
        let next = tokio::time::timeout(Duration::from_secs(20), signals.next()).await;
        assert_eq!(next.ok(), Some("SIGTERM"));
    }
}
