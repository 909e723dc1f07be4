//! Tokens of service accounts that end with an object: once it is deleted, the API server refuses them.

use super::{KubernetesExecutor, api::call};
use dormer_proto::message::Failure;
use k8s_openapi::api::{
    authentication::v1::{
        BoundObjectReference, TokenRequest, TokenRequestSpec, TokenRequestStatus,
    },
    core::v1::ServiceAccount,
};
use kube::{Api, Resource, ResourceExt, api::PostParams};

impl KubernetesExecutor {
    /// Creates a token of a service account, bound to `object`, for `life_s` seconds; the API server may grant less.
    /// Failures of an unusable answer have `code`.
    pub(super) async fn bound_token<K: Resource<DynamicType = ()>>(
        &self,
        (namespace, account): (&str, &str),
        object: &K,
        life_s: i64,
        code: &str,
    ) -> Result<TokenRequestStatus, Failure> {
        let bound = BoundObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            name: Some(object.name_any()),
            uid: object.uid(),
        };
        let request = TokenRequest {
            spec: TokenRequestSpec {
                bound_object_ref: Some(bound),
                expiration_seconds: Some(life_s),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let what = format!("a token of ServiceAccount {namespace}/{account}");
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let params = PostParams::default();
        let given = accounts.create_token_request(account, &params, &request);
        let given = call("create", &what, given).await?.status;
        given.ok_or_else(|| Failure::transient(code, format!("{what} came without a status")))
    }
}
