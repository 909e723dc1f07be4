//! Survey of a cluster: what preflight reads of it, and nothing that it writes.

use super::rights::{self, Right};
use crate::cluster_access::{failed, silent};
use dormer_client::Failure;
use dormer_proto::other_operator::OtherOperator;
use dormer_workers::{
    kubernetes::{operators, server_day},
    pool::layers,
};
use futures::future::join_all;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams},
};
use serde_json::Value;
use std::{collections::BTreeSet, time::Duration};
use tokio::time::timeout;

/// Time limit of one answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Most objects of one answer.
const PAGE_MAX: u32 = 500;
/// Most answers about one kind.
const PAGES_MAX: usize = 100;
/// Namespace of the Machine API.
pub(super) const MACHINE_API: &str = "openshift-machine-api";
/// Namespace of the machine config operator.
const MACHINE_CONFIG: &str = "openshift-machine-config-operator";

/// One object: absent, unread with the reason, or there.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum ReadObject {
    /// There is none, or no such kind.
    #[default]
    Absent,
    /// It could not be read.
    Unread(String),
    /// As the API server has it.
    There(Value),
}

impl ReadObject {
    /// The object, if it is there.
    pub(super) fn value(&self) -> Option<&Value> {
        match self {
            Self::There(value) => Some(value),
            Self::Absent | Self::Unread(_) => None,
        }
    }
}

/// What was read.
#[derive(Debug, Clone, Default)]
pub(super) struct Survey {
    /// dormer's namespace.
    pub(super) namespace: String,
    /// Version of the API server that answered, as `v1.33.4`.
    pub(super) api_server: String,
    /// Its day, as `2026-11-28`; empty if its answer has none.
    pub(super) today: String,
    pub(super) infrastructure: ReadObject,
    pub(super) cluster_version: ReadObject,
    /// `networks.config.openshift.io`.
    pub(super) network: ReadObject,
    /// `networks.operator.openshift.io`.
    pub(super) network_operator: ReadObject,
    /// Secret with dormer's private key.
    pub(super) key: ReadObject,
    /// Public half of the key, where an ssh-agent has it and no Secret.
    pub(super) agent_key: Option<String>,
    /// Secret with the user data of Windows machines.
    pub(super) user_data: ReadObject,
    /// MachineConfig with the keys that the cluster was installed with.
    pub(super) install_keys: ReadObject,
    /// Secret with the token of new nodes.
    pub(super) bootstrap: ReadObject,
    pub(super) pull_secret: ReadObject,
    pub(super) machine_sets: Objects,
    pub(super) health_checks: Objects,
    pub(super) autoscalers: Objects,
    /// ClusterAutoscalers, of which OpenShift has one, named `default`.
    pub(super) cluster_autoscalers: Objects,
    pub(super) runtime_classes: Objects,
    /// Pools, in all namespaces.
    pub(super) pools: Objects,
    /// ConfigMaps with layers that the pools of dormer's namespace name.
    pub(super) layers: Vec<(String, ReadObject)>,
    pub(super) nodes: Objects,
    /// ConfigMaps `windows-instances`, in all namespaces.
    pub(super) instances: Objects,
    /// Definitions of kinds.
    pub(super) definitions: Objects,
    /// Deployments of gMSA's webhook.
    pub(super) gmsa_webhooks: Objects,
    /// Credential specs of gMSA.
    pub(super) gmsa_specs: Objects,
    /// Another operator for Windows hosts.
    pub(super) operator: Option<operators::OperatorSearch>,
    /// ClusterServiceVersions of that operator.
    pub(super) operator_installed: Vec<String>,
    /// Whether a console that runs made it, by its own account.
    pub(super) running: bool,
    /// Account whose rights were looked at, unless it is the kubeconfig's own.
    pub(super) account: Option<String>,
    /// Rights that the account lacks, as `patch nodes`.
    pub(super) lacks: Vec<String>,
    /// What could not be read, with the reason.
    pub(super) unread: Vec<String>,
    /// Kinds of which no list could be read: an object of theirs is not absent because it is not here.
    pub(super) unread_kinds: BTreeSet<String>,
}

/// Objects of one kind; empty if there are none, or no such kind.
pub(super) type Objects = Vec<Value>;

/// Reads the cluster. `namespace` is dormer's. `asked` is the account whose rights are looked at, with its client; without
/// one it is the account that reads.
///
/// # Errors
/// No API server answers.
pub(super) async fn read(
    client: &Client,
    namespace: &str,
    asked: Option<(&str, &Client)>,
) -> Result<Survey, Failure> {
    let mut reader = ClusterReader::of(client);
    let mut survey = reader.cluster(namespace).await?;
    reader.elsewhere(&mut survey).await;
    reader.secrets(&mut survey).await;
    reader.definitions(&mut survey).await;
    survey.unread = reader.unread;
    survey.unread_kinds = reader.unread_kinds;
    read_operators(client, &mut survey).await;
    let needed = rights::needed(namespace, asked.map(|(account, _)| account));
    let asking = asked.map_or(client, |(_, client)| client);
    survey.lacks = missing_rights(asking, &needed, &mut survey.unread).await;
    survey.account = asked.map(|(account, _)| account.to_owned());
    Ok(survey)
}

/// Reads what the console's account may read, and no secret. What it may not read is left out, and the right is among those
/// that it lacks. The other roles say themselves what they lack.
///
/// # Errors
/// No API server answers.
pub(super) async fn read_while_running(
    client: &Client,
    namespace: &str,
) -> Result<Survey, Failure> {
    let left_out = || ReadObject::Unread("a dormer that runs does not read it for this".into());
    let mut reader = ClusterReader::of(client);
    let survey = reader.cluster(namespace).await?;
    let pools = reader.many("dormer.io/v1beta1", "WindowsPool", None).await;
    let autoscaling = "autoscaling.openshift.io/v1beta1";
    let autoscalers = reader.many(autoscaling, "MachineAutoscaler", Some(MACHINE_API));
    let mut autoscalers = autoscalers.await;
    if survey.machine_sets.is_empty() {
        // Perhaps they could not be read, and a target would count as one that is not there.
        autoscalers.clear();
    }
    let runtime_classes = reader.many("node.k8s.io/v1", "RuntimeClass", None).await;
    let needed = rights::of_the_console(namespace);
    let lacks = missing_rights(client, &needed, &mut reader.unread).await;
    Ok(Survey {
        running: true,
        lacks,
        pools,
        autoscalers,
        runtime_classes,
        key: left_out(),
        agent_key: None,
        user_data: left_out(),
        install_keys: left_out(),
        bootstrap: left_out(),
        pull_secret: left_out(),
        ..survey
    })
}

/// Other operators of Windows nodes: what runs, and what is installed.
async fn read_operators(client: &Client, survey: &mut Survey) {
    let operator = operators::check(client).await;
    if let (OtherOperator::Unread, Some(why)) = (&operator.neighbour, &operator.unread) {
        survey.unread.push(why.clone());
    }
    survey.operator = Some(operator);
    match operators::installed(client).await {
        Ok(all) => survey.operator_installed = all,
        Err(why) => survey.unread.push(why),
    }
}

pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn slow(what: &str) -> String {
    format!("{what}: no answer within {} s", ANSWER_MAX.as_secs())
}

struct ClusterReader<'a> {
    client: &'a Client,
    unread: Vec<String>,
    unread_kinds: BTreeSet<String>,
}

impl<'a> ClusterReader<'a> {
    fn of(client: &'a Client) -> Self {
        Self {
            client,
            unread: Vec::new(),
            unread_kinds: BTreeSet::new(),
        }
    }

    /// Versions, networks, MachineSets, their health checks and Nodes: nothing secret, and what dormer reads anyway.
    async fn cluster(&mut self, namespace: &str) -> Result<Survey, Failure> {
        let in_time = timeout(ANSWER_MAX, self.client.apiserver_version()).await;
        let answer = in_time.map_err(|_| silent(slow("its version")))?;
        let version = answer.map_err(failed)?;
        let config = "config.openshift.io/v1";
        let machine = "machine.openshift.io/v1beta1";
        let home = Some(MACHINE_API);
        Ok(Survey {
            namespace: namespace.to_owned(),
            api_server: version.git_version,
            today: server_day(self.client).await.unwrap_or_default(),
            infrastructure: self.one(config, "Infrastructure", None, "cluster").await,
            cluster_version: self.one(config, "ClusterVersion", None, "version").await,
            network: self.one(config, "Network", None, "cluster").await,
            network_operator: self
                .one("operator.openshift.io/v1", "Network", None, "cluster")
                .await,
            machine_sets: self.many(machine, "MachineSet", home).await,
            health_checks: self.many(machine, "MachineHealthCheck", home).await,
            nodes: self.many("v1", "Node", None).await,
            ..Survey::default()
        })
    }

    /// Objects that dormer itself does not read, or in its own namespace alone.
    async fn elsewhere(&mut self, survey: &mut Survey) {
        let autoscaling = "autoscaling.openshift.io/v1beta1";
        survey.autoscalers = self
            .many(autoscaling, "MachineAutoscaler", Some(MACHINE_API))
            .await;
        survey.cluster_autoscalers = self
            .many("autoscaling.openshift.io/v1", "ClusterAutoscaler", None)
            .await;
        survey.runtime_classes = self.many("node.k8s.io/v1", "RuntimeClass", None).await;
        survey.pools = self.many("dormer.io/v1beta1", "WindowsPool", None).await;
        survey.instances = self.named("v1", "ConfigMap", "windows-instances").await;
        let home = Some(survey.namespace.as_str());
        let ours = |it: &&Value| it["metadata"]["namespace"].as_str() == home;
        let named = survey.pools.iter().filter(ours);
        let named = named.flat_map(|it| layers(&it["spec"]).unwrap_or_default());
        for name in named.collect::<Vec<_>>() {
            let map = self.one("v1", "ConfigMap", home, &name).await;
            survey.layers.push((name, map));
        }
    }

    /// Keys, tokens and user data.
    async fn secrets(&mut self, survey: &mut Survey) {
        let key = (survey.namespace.as_str(), "cloud-private-key");
        survey.key = self.secret(key).await;
        survey.user_data = self.secret((MACHINE_API, "windows-user-data")).await;
        survey.bootstrap = self
            .secret((MACHINE_CONFIG, "node-bootstrapper-token"))
            .await;
        survey.pull_secret = self.secret(("openshift-config", "pull-secret")).await;
        let machine_config = "machineconfiguration.openshift.io/v1";
        survey.install_keys = self
            .one(machine_config, "MachineConfig", None, "99-worker-ssh")
            .await;
    }

    /// Definitions of kinds, and what belongs to gMSA.
    async fn definitions(&mut self, survey: &mut Survey) {
        let kind = "CustomResourceDefinition";
        survey.definitions = self.many("apiextensions.k8s.io/v1", kind, None).await;
        survey.gmsa_webhooks = self.many("apps/v1", "Deployment", None).await;
        survey
            .gmsa_webhooks
            .retain(|it| name(it).contains("gmsa-webhook"));
        survey.gmsa_specs = self
            .many("windows.k8s.io/v1", "GMSACredentialSpec", None)
            .await;
    }

    async fn secret(&mut self, (namespace, name): (&str, &str)) -> ReadObject {
        self.one("v1", "Secret", Some(namespace), name).await
    }

    fn api(&self, version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let client = self.client.clone();
        match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        }
    }

    async fn one(
        &mut self,
        version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> ReadObject {
        let api = self.api(version, kind, namespace);
        let what = format!("{kind} {name}");
        let why = match timeout(ANSWER_MAX, api.get_opt(name)).await {
            Ok(Ok(None)) => return ReadObject::Absent,
            Ok(Ok(Some(found))) => match serde_json::to_value(found) {
                Ok(value) => return ReadObject::There(value),
                Err(error) => format!("{what}: {error}"),
            },
            Ok(Err(error)) => format!("{what}: {error}"),
            Err(_) => slow(&what),
        };
        self.unread.push(why.clone());
        ReadObject::Unread(why)
    }

    async fn many(&mut self, version: &str, kind: &str, namespace: Option<&str>) -> Vec<Value> {
        let api = self.api(version, kind, namespace);
        self.listed(version, kind, &api, ListParams::default())
            .await
    }

    /// Objects of one name, in all namespaces.
    async fn named(&mut self, version: &str, kind: &str, name: &str) -> Vec<Value> {
        let api = self.api(version, kind, None);
        let params = ListParams::default().fields(&format!("metadata.name={name}"));
        self.listed(version, kind, &api, params).await
    }

    async fn listed(
        &mut self,
        version: &str,
        kind: &str,
        api: &Api<DynamicObject>,
        params: ListParams,
    ) -> Vec<Value> {
        let mut params = params.limit(PAGE_MAX);
        let mut found = Vec::new();
        for _ in 0..PAGES_MAX {
            let page = match timeout(ANSWER_MAX, api.list(&params)).await {
                Ok(Ok(page)) => page,
                // No such kind here.
                Ok(Err(kube::Error::Api(status))) if status.code == 404 => return Vec::new(),
                Ok(Err(error)) => return self.left_out(kind, format!("{kind}s: {error}")),
                Err(_) => return self.left_out(kind, slow(&format!("{kind}s"))),
            };
            for object in page.items {
                let mut value = serde_json::to_value(object).unwrap_or_default();
                // A list has them once, for all.
                value["apiVersion"] = version.into();
                value["kind"] = kind.into();
                found.push(value);
            }
            match page.metadata.continue_.filter(|more| !more.is_empty()) {
                Some(more) => params = params.continue_token(&more),
                None => return found,
            }
        }
        let why = format!("{kind}s: there are more than {}", found.len());
        self.left_out(kind, why)
    }

    /// Half a list would hide what is wrong, and make what is not in it count as absent.
    fn left_out(&mut self, kind: &str, why: String) -> Vec<Value> {
        self.unread_kinds.insert(kind.to_owned());
        self.unread.push(why);
        Vec::new()
    }
}

/// Rights that the client's account does not have.
async fn missing_rights(
    client: &Client,
    needed: &[Right],
    unread: &mut Vec<String>,
) -> Vec<String> {
    let reviews = needed.iter().map(|right| async move {
        let (resource, part) = match right.resource.split_once('/') {
            Some((resource, part)) => (resource, Some(part.to_owned())),
            None => (right.resource.as_str(), None),
        };
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    group: Some(right.group.clone()),
                    resource: Some(resource.to_owned()),
                    subresource: part,
                    name: right.name.clone(),
                    namespace: right.namespace.clone(),
                    verb: Some(right.verb.clone()),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
        let params = PostParams::default();
        match timeout(ANSWER_MAX, api.create(&params, &review)).await {
            Ok(Ok(answer)) => Ok(answer.status.is_some_and(|it| it.allowed)),
            Ok(Err(error)) => Err(format!("the right to {right}: {error}")),
            Err(_) => Err(slow(&format!("the right to {right}"))),
        }
    });
    let mut lacking = Vec::new();
    for (right, allowed) in needed.iter().zip(join_all(reviews).await) {
        match allowed {
            Ok(true) => {}
            Ok(false) => lacking.push(right.to_string()),
            Err(why) => {
                unread.push(why);
                break;
            }
        }
    }
    lacking
}
