//! Rendering for people: the configuration that one machine would get, with secrets shown by name.

use crate::live::Live;
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
    message::{Failure, NodeSettings},
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

/// Failure of a console that got no settings from a worker lately.
pub(crate) const NOT_PUBLISHED: &str = "SettingsNotPublished";

/// Function that reads the nodes' bootstrap settings and the cluster's settings for all nodes.
type Bootstraps =
    dyn Fn() -> BoxFuture<'static, Result<(Bootstrap, Around), Failure>> + Send + Sync;

/// Settings of the cluster for all nodes.
enum Around {
    /// As this process read them.
    Read(ClusterSnapshot),
    /// As a worker published them. `None`: this process watches the cluster, and its catalog has them already.
    Published(Option<ClusterConfig>),
}

/// Inputs of a rendering: profile, payload and cluster settings.
pub(crate) type PlanParts<'a> = (&'a Profile, &'a Manifest, &'a ClusterConfig);

/// Renderer of plans: the catalog, and the cluster's own values.
pub struct PlanRenderer {
    pub(crate) catalog: Catalog,
    bootstrap: Box<Bootstraps>,
    /// Where a worker's settings come from, if this process reads none itself.
    published: Option<Arc<Live>>,
}

impl PlanRenderer {
    pub fn new<C: Cluster>(catalog: Catalog, cluster: Arc<C>) -> Arc<Self> {
        let bootstrap: Box<Bootstraps> = Box::new(move || {
            let cluster = Arc::clone(&cluster);
            Box::pin(async move {
                let around = Around::Read(cluster.read_cluster().await);
                Ok((cluster.bootstrap().await?, around))
            })
        });
        Arc::new(Self {
            catalog,
            bootstrap,
            published: None,
        })
    }

    /// Renderer of a process that may not read the cluster: a worker publishes what it needs.
    /// `watches`: this process also watches the cluster. Its catalog then has the cluster's settings already, and decides by them
    /// what machines should carry, so what others publish does not enter it.
    pub fn published(catalog: Catalog, live: Arc<Live>, watches: bool) -> Arc<Self> {
        let published = (!watches).then(|| Arc::clone(&live));
        let bootstrap: Box<Bootstraps> = Box::new(move || {
            let settings = live.settings();
            Box::pin(async move { of_published(settings, watches) })
        });
        Arc::new(Self {
            catalog,
            bootstrap,
            published,
        })
    }

    /// Why the pool's latest layers are not in force, as this process or a worker read them.
    pub(crate) fn layers_refused(&self) -> Option<String> {
        let Some(live) = &self.published else {
            return self.catalog.cluster_config().layers_refused.clone();
        };
        let read = ClusterConfig::from_published(&live.settings()?.cluster);
        read.ok()?.layers_refused
    }

    /// Reads the cluster's own values, and refreshes the catalog.
    ///
    /// # Errors
    /// The cluster cannot be read.
    pub(crate) async fn bootstrap(&self) -> Result<Bootstrap, Failure> {
        let (bootstrap, around) = (self.bootstrap)().await?;
        match around {
            // Without a watcher, only this code reads the cluster's settings.
            Around::Read(snapshot) => {
                for warning in self.catalog.read_cluster(snapshot) {
                    tracing::debug!("of the cluster around: {warning}");
                }
            }
            Around::Published(None) => {}
            Around::Published(Some(cluster_config)) => {
                let applied = self.catalog.set_cluster(cluster_config);
                applied.map_err(|why| {
                    Failure::lasting(
                        "LayersUnusable",
                        format!("the cluster and the layers: {why}"),
                    )
                })?;
            }
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

/// Values of published settings. Certificates and tokens are shown by name, so their content is not needed.
fn of_published(
    settings: Option<NodeSettings>,
    watches: bool,
) -> Result<(Bootstrap, Around), Failure> {
    let settings = settings.ok_or_else(|| {
        let message = "no worker has published in the last 5 minutes how nodes join";
        Failure::transient(NOT_PUBLISHED, message)
    })?;
    let around = ClusterConfig::from_published(&settings.cluster);
    let around = around.map_err(|why| {
        Failure::transient(
            NOT_PUBLISHED,
            format!("a worker's settings are unreadable: {why}"),
        )
    })?;
    let bootstrap = Bootstrap {
        api_url: settings.api_url,
        api_ca: String::new(),
        client_ca: String::new(),
        token: None,
        exporter_tls: settings.exporter.then(Default::default),
        cluster_dns: settings.cluster_dns,
        cluster_domain: settings.cluster_domain,
        service_cidr: settings.service_cidr,
    };
    Ok((bootstrap, Around::Published((!watches).then_some(around))))
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
