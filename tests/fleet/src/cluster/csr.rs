//! Certificate signer: signs approved requests of the two signers that kubelets use.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{client::Client, run::Reconcile};
use crate::{
    api::{Key, Meta, Refusal, ca, kinds, kinds::Kind, store::Event},
    faults::{Fault, Faults},
};

const SERVING: &str = "kubernetes.io/kubelet-serving";
const SIGNERS: [&str; 3] = [
    SERVING,
    "kubernetes.io/kube-apiserver-client-kubelet",
    "kubernetes.io/kube-apiserver-client",
];

/// The approver and signer of kube-controller-manager.
pub struct Signer {
    /// Its view of the cluster.
    pub client: Client,
    /// What trouble is ordered: another approver may be faster.
    pub faults: Faults,
}

impl Reconcile for Signer {
    fn sources(&self) -> Vec<&'static Kind> {
        vec![&kinds::CSR]
    }

    fn keys(&self, _: &'static Kind, event: &Event) -> Vec<Key> {
        if event.deleted {
            Vec::new()
        } else {
            vec![Key::of(&event.object.value)]
        }
    }

    fn reconcile(&self, key: Key) -> BoxFuture<'_, Result<Option<Duration>, Refusal>> {
        Box::pin(async move {
            let Some(csr) = self.client.get(&kinds::CSR, &key) else {
                return Ok(None);
            };
            let csr = &csr.value;
            if csr["status"]["certificate"].is_string() || csr.is("Denied") {
                return Ok(None);
            }
            if !csr.is("Approved") {
                return self.approve_before_others(&key, csr).await;
            }
            let signer = csr["spec"]["signerName"].as_str().unwrap_or_default();
            if !SIGNERS.contains(&signer) {
                return Ok(None);
            }
            let request = csr["spec"]["request"].as_str().unwrap_or_default();
            let request = BASE64_STANDARD.decode(request).unwrap_or_default();
            let status = match self.client.server().ca().sign(&request, signer == SERVING) {
                Ok(pem) => json!({"certificate": BASE64_STANDARD.encode(pem)}),
                Err(error) => json!({"conditions": [{"type": "Failed", "status": "True",
                    "reason": "SignerValidationFailure", "message": error.to_string()}]}),
            };
            if status["certificate"].is_null() && csr.condition("Failed").is_some() {
                return Ok(None);
            }
            self.client
                .status(&kinds::CSR, &key, status)
                .await
                .map(|_| None)
        })
    }
}

impl Signer {
    /// Fault: another approver is faster (scenario 37).
    async fn approve_before_others(
        &self,
        key: &Key,
        csr: &Value,
    ) -> Result<Option<Duration>, Refusal> {
        if !self.faults.ordered(Fault::CsrApprovedBefore) {
            return Ok(None);
        }
        let request = csr["spec"]["request"].as_str().unwrap_or_default();
        let request = BASE64_STANDARD.decode(request).unwrap_or_default();
        let Ok(request) = ca::read_request(&request) else {
            return Ok(None);
        };
        let node = request.common_name.trim_start_matches("system:node:");
        if !self.faults.strike(Fault::CsrApprovedBefore, node) {
            return Ok(None);
        }
        let mut approved = csr.clone();
        approved["status"]["conditions"] = json!([{"type": "Approved", "status": "True",
            "reason": "AutoApproved", "message": "Another approver was faster.",
            "lastUpdateTime": self.client.stamp()}]);
        self.client.approve(key, approved).await.map(|_| None)
    }
}
