//! The hands of this process' worker, made from its settings.

use super::key::{Keyed, LOOK_EVERY, Source};
use crate::config::Config;
use dormer_proto::{machine::Outcome, message::Failure, work::Order};
use dormer_workers::{
    catalog::Catalog,
    execute::{Execute, Hands},
    progress::Progress,
};
use std::sync::Arc;

/// Both pairs of hands.
pub(crate) type Both = Hands<Keyed<Missing>, Missing>;

/// Hands for tasks that this build cannot do.
pub(crate) struct Missing;

impl Execute for Missing {
    async fn execute(&self, _: &Order, _: &Progress) -> Result<Outcome, Failure> {
        Err(Failure::transient("NotInThisBuild", "this build cannot do this task"))
    }
}

/// Both pairs of hands for the cluster behind `client`.
pub(crate) async fn both(
    config: &Config,
    client: &kube::Client,
    _catalog: &Arc<Catalog>,
) -> anyhow::Result<Both> {
    let source = Source {
        client: client.clone(),
        namespace: config.namespace.clone(),
        place: config.key.clone(),
        look_every: LOOK_EVERY,
    };
    let host = Keyed::follow(source, |_key| Missing).await;
    Ok(Hands { host, kubernetes: Missing })
}
