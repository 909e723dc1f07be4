//! Objects that are watched only to notice a change: who reads them asks for them again. Watches bring their metadata alone,
//! so that no secret comes with them.

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
};

/// Objects of one kind, or one of them.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    pub(crate) api: Api<DynamicObject>,
    /// Name of the only one; `None`: all of them.
    pub(crate) name: Option<String>,
    /// Its kind with the group, name and namespace, for people.
    pub(crate) what: String,
    /// Kind that the cluster serves where they are looked for; `None`: they are in every cluster.
    beside: Option<ApiResource>,
}

impl Watched {
    /// Objects of a kind; `namespace`: the only one.
    pub(crate) fn new(client: &Client, kind: &ApiResource, namespace: Option<&str>) -> Self {
        let group = match kind.group.as_str() {
            "" => String::new(),
            group => format!(".{group}"),
        };
        let (api, place) = match namespace {
            Some(namespace) => (
                Api::namespaced_with(client.clone(), namespace, kind),
                format!(" in namespace {namespace}"),
            ),
            None => (Api::all_with(client.clone(), kind), String::new()),
        };
        Self {
            api,
            name: None,
            what: format!("{}{group}{place}", kind.plural),
            beside: None,
        }
    }

    /// Only where the cluster serves this kind: elsewhere nothing reads them, and no right to watch them is granted.
    pub(super) fn beside(self, kind: ApiResource) -> Self {
        Self {
            beside: Some(kind),
            ..self
        }
    }

    /// Whether this cluster may have them.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(crate) async fn may_be_there(&self) -> Result<bool, kube::Error> {
        let Some(kind) = &self.beside else {
            return Ok(true);
        };
        let client = self.api.clone().into_client();
        match client.list_api_group_resources(&kind.api_version).await {
            Ok(served) => Ok(served.resources.iter().any(|it| it.name == kind.plural)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Only the object of this name.
    pub(crate) fn named(self, name: &str) -> Self {
        let what = match self.what.split_once(" in ") {
            Some((kind, place)) => format!("{kind}/{name} in {place}"),
            None => format!("{}/{name}", self.what),
        };
        Self {
            name: Some(name.to_owned()),
            what,
            ..self
        }
    }
}
