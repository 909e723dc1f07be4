//! Certificates that a machine's kubelet was seen to get.

use dormer_proto::machine::{CLIENT_SIGNER, SERVING_SIGNER, Validity};
use serde::{Deserialize, Serialize};

/// Certificates of a kubelet, each the one that was issued last. `None`: it was issued before dormer looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KubeletCertificates {
    /// By which the API server knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<Validity>,
    /// By which it serves logs and exec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serving: Option<Validity>,
}

impl KubeletCertificates {
    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Each that is known, with its use.
    pub fn each(self) -> impl Iterator<Item = (&'static str, Validity)> {
        let all = [("client", self.client), ("serving", self.serving)];
        all.into_iter()
            .filter_map(|(used_as, validity)| Some((used_as, validity?)))
    }

    /// Notes a certificate that was issued for the requests of `signer`, unless a later one is known: facts may come out of
    /// their order.
    pub(super) fn note(&mut self, signer: &str, issued: Validity) {
        let one = match signer {
            CLIENT_SIGNER => &mut self.client,
            SERVING_SIGNER => &mut self.serving,
            _ => return,
        };
        if one.is_none_or(|known| known.from <= issued.from) {
            *one = Some(issued);
        }
    }
}
