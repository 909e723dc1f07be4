//! Garbage collection: what belongs to an owner that is gone, and what is in a namespace that
//! goes.

use std::time::Duration;

use futures::future::BoxFuture;

use super::{client::Client, run::Reconcile};
use crate::api::{DeleteOptions, Key, Meta, Refusal, kinds, kinds::Kind, store::Event};

/// Owners that the collector knows, and the kind of what they own.
const OWNED: [(&Kind, &Kind); 6] = [
    (&kinds::MACHINE_SET, &kinds::MACHINE),
    (&kinds::CLUSTER_MACHINE_SET, &kinds::CLUSTER_MACHINE),
    (&kinds::DEPLOYMENT, &kinds::REPLICA_SET),
    (&kinds::REPLICA_SET, &kinds::POD),
    (&kinds::STATEFUL_SET, &kinds::POD),
    (&kinds::DAEMON_SET, &kinds::POD),
];

/// The collector for one pair of owner and owned.
pub struct Collector {
    client: Client,
    owner: &'static Kind,
    owned: &'static Kind,
}

impl Collector {
    /// One collector per pair.
    pub fn all(client: &Client) -> Vec<Self> {
        let one = |(owner, owned): &(&'static Kind, &'static Kind)| Self {
            client: client.clone(),
            owner,
            owned,
        };
        OWNED.iter().map(one).collect()
    }
}

impl Reconcile for Collector {
    fn sources(&self) -> Vec<&'static Kind> {
        vec![self.owner]
    }

    fn keys(&self, _: &'static Kind, event: &Event) -> Vec<Key> {
        if event.deleted {
            vec![Key::of(&event.object.value)]
        } else {
            Vec::new()
        }
    }

    fn reconcile(&self, key: Key) -> BoxFuture<'_, Result<Option<Duration>, Refusal>> {
        Box::pin(async move {
            let now = self.client.get(self.owner, &key);
            let now = now.as_ref().map_or("", |o| o.value.uid());
            for child in self.client.within(self.owned, &key.namespace) {
                let owners = child.value["metadata"]["ownerReferences"].as_array();
                let mut owners = owners.into_iter().flatten();
                let orphan = owners.any(|o| {
                    o["kind"] == self.owner.kind && o["name"] == key.name && o["uid"] != now
                });
                if orphan && !child.value.deleting() {
                    let child = Key::of(&child.value);
                    self.client
                        .delete(self.owned, &child, &DeleteOptions::default())
                        .await?;
                }
            }
            Ok(None)
        })
    }
}

/// Empties namespaces that are being deleted, and then removes them.
pub struct Namespaces {
    /// Its view of the cluster.
    pub client: Client,
}

impl Reconcile for Namespaces {
    fn sources(&self) -> Vec<&'static Kind> {
        vec![&kinds::NAMESPACE]
    }

    fn keys(&self, _: &'static Kind, event: &Event) -> Vec<Key> {
        let going = !event.deleted && event.object.value.deleting();
        if going {
            vec![Key::of(&event.object.value)]
        } else {
            Vec::new()
        }
    }

    fn reconcile(&self, key: Key) -> BoxFuture<'_, Result<Option<Duration>, Refusal>> {
        Box::pin(async move {
            let mut left = 0;
            for kind in kinds::ALL.iter().filter(|k| k.namespaced) {
                for object in self.client.within(kind, &key.name) {
                    left += 1;
                    let object = Key::of(&object.value);
                    self.client
                        .delete(kind, &object, &DeleteOptions::default())
                        .await?;
                }
            }
            if left > 0 {
                return Ok(Some(Duration::from_secs(1)));
            }
            let store = self.client.server().store();
            store.transact("system:namespace-controller", |tx| {
                tx.delete(kinds::NAMESPACE.store, &key);
            });
            Ok(None)
        })
    }
}
