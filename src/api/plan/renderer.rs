//! Rendering for people: the configuration that one machine would get, with secrets shown by name.

use dormer_profile::{
    cluster_config::{ClusterConfig, ClusterSnapshot},
    document::Document,
    payload::Manifest,
    profile::Profile,
    render::{Inputs, render},
    shown::named_secrets,
    values::JOIN_SECRETS,
};
use dormer_proto::{
    machine::{HostRef, Section},
    message::Failure,
};
use dormer_workers::{
    catalog::Catalog,
    host::{
        cluster::{Bootstrap, Cluster},
        values::{NodeValues, values},
    },
};
use dormer_workflows::machine::State;
use futures::future::BoxFuture;
use std::sync::Arc;

/// Function that reads the nodes' bootstrap settings and the cluster's settings for all nodes.
type Bootstraps =
    dyn Fn() -> BoxFuture<'static, Result<(Bootstrap, ClusterSnapshot), Failure>> + Send + Sync;

/// Inputs of a rendering: profile, payload and cluster settings.
pub(crate) type PlanParts<'a> = (&'a Profile, &'a Manifest, &'a ClusterConfig);

/// Renderer of plans: the catalog, and the cluster's own values.
pub struct PlanRenderer {
    pub(crate) catalog: Catalog,
    bootstrap: Box<Bootstraps>,
}

impl PlanRenderer {
    pub fn new<C: Cluster>(catalog: Catalog, cluster: Arc<C>) -> Arc<Self> {
        let bootstrap: Box<Bootstraps> = Box::new(move || {
            let cluster = Arc::clone(&cluster);
            Box::pin(async move { Ok((cluster.bootstrap().await?, cluster.read_cluster().await)) })
        });
        Arc::new(Self { catalog, bootstrap })
    }

    /// Reads the cluster's own values, and refreshes the catalog.
    ///
    /// # Errors
    /// The cluster cannot be read.
    pub(crate) async fn bootstrap(&self) -> Result<Bootstrap, Failure> {
        let (bootstrap, snapshot) = (self.bootstrap)().await?;
        // Without a watcher, only this code reads the cluster's settings.
        for warning in self.catalog.read_cluster(snapshot) {
            tracing::debug!("of the cluster around: {warning}");
        }
        Ok(bootstrap)
    }

    /// Sections of a machine by `profile` and `payload`. The second section needs the machine's Node.
    ///
    /// # Errors
    ///
    /// Each part that cannot be rendered, with its location and reason.
    pub(crate) fn documents(
        &self,
        bootstrap: &Bootstrap,
        state: &State,
        (profile, payload, cluster_config): PlanParts<'_>,
        version: &str,
    ) -> Result<Vec<Document>, String> {
        let host = host(state);
        let node = state.node_name();
        let sections: &[Section] = if node.is_some() {
            &[Section::Host, Section::Node]
        } else {
            &[Section::Host]
        };
        let exporter = bootstrap.exporter_tls.is_some();
        let mut secrets = named_secrets(profile, |name| {
            JOIN_SECRETS.contains(&name) || (exporter && name.starts_with("exporter-tls-"))
        });
        cluster_config.named_secrets(&host.platform.to_lowercase(), &mut secrets);
        let keep = self.catalog.folders();
        let one = |section: &Section| {
            let known = NodeValues {
                named: node.clone().or_else(|| state.host.node_name.clone()),
                node: node.as_deref(),
                subnet: state.node.as_ref().and_then(|node| node.subnet.clone()),
            };
            let mut values = values(bootstrap, &host, *section, known, payload);
            cluster_config.fill(&mut values);
            let variables = values.variables();
            let inputs = Inputs {
                profile,
                payload,
                variables: &variables,
                secrets: &secrets,
                keep: &keep,
            };
            let section = match section {
                Section::Host => dormer_profile::document::Section::Host,
                Section::Node => dormer_profile::document::Section::Node,
            };
            let rendered = render(&inputs, section, version);
            rendered
                .map(|rendered| rendered.document)
                .map_err(|problems| problems.to_string())
        };
        sections.iter().map(one).collect()
    }
}

/// Host data of a machine for a rendering.
fn host(state: &State) -> HostRef {
    HostRef {
        machine: state.machine_ref(),
        address: state.address().unwrap_or_default().to_owned(),
        platform: state
            .machine
            .as_ref()
            .map(|it| it.platform.clone())
            .unwrap_or_default(),
        ..HostRef::default()
    }
}
