//! What `dormer run` meets outside: the cluster's API, profile layers on disk, and the end of the process.

use crate::config::Config;
use anyhow::Context;
use dormer_profile::layers::Layer;
use dormer_workers::catalog::Catalog;
use kube::{
    Client,
    config::{KubeConfigOptions, Kubeconfig},
};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// How long a connection to the API server may take to come about.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Signals within this time are one.
const ECHO: Duration = Duration::from_secs(1);

/// A client for the cluster's API, as the configuration says.
///
/// # Errors
/// There is no kubeconfig and no pod's account, or it cannot be used.
pub(crate) async fn client(config: &Config) -> anyhow::Result<Client> {
    let options = KubeConfigOptions {
        context: config.context.clone(),
        ..Default::default()
    };
    let found = match &config.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path)
                .with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(file, &options).await?
        }
        None if config.context.is_some() => kube::Config::from_kubeconfig(&options).await?,
        None => kube::Config::infer().await.context(
            "no cluster is named: give --kubeconfig, set KUBECONFIG, or run in a pod with an account",
        )?,
    };
    let mut found = found;
    // Waits belong to the engine's retries and to the watcher; a client that waits by itself hides what goes on.
    found.default_retry = false;
    found.connect_timeout = Some(CONNECT_MAX);
    Ok(Client::try_from(found)?)
}

/// The built-in profiles with the layers on top.
///
/// # Errors
/// A layer has mistakes: file, line and reason.
pub(crate) fn catalog(config: &Config) -> anyhow::Result<Catalog> {
    let mut layers = Vec::with_capacity(config.layers.len());
    for path in &config.layers {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the profile layer {}", path.display()))?;
        layers.push(Layer::parse(&path.display().to_string(), &text)?);
    }
    Ok(Catalog::new(&layers)?)
}

/// As [`asked_to_stop`], but not by an echo of a first signal: a terminal, or a program that starts others, tells a
/// process and its group at once.
///
/// # Errors
/// The system takes no handlers.
pub(crate) async fn asked_to_stop_again() -> std::io::Result<&'static str> {
    tokio::time::sleep(ECHO).await;
    asked_to_stop().await
}

/// Waits for SIGTERM or SIGINT, and says which came.
///
/// # Errors
/// The system takes no handlers.
pub async fn asked_to_stop() -> std::io::Result<&'static str> {
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(tokio::select! {
        _ = term.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    })
}
