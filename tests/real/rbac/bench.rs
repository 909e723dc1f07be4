//! Fixture: dormer's accounts at work, each with the shipped rules, or without one of them.

use super::{
    rights::{Right, allowed, rights, rule},
    steps::Step,
};
use crate::real::{
    accounts::{apply, cloud_nodes, home, moved, ours},
    ask::{Ask, OPERATOR, bootstrap_token},
    cluster::{PATIENCE, Site, WINDOWS_MACHINE, World, executor, run},
    watching::{everything_is_observed, settings},
};
use Step::{
    AnswersABadSetting, ApprovesAClient, ApprovesAServer, DeletesAMachine, DrainsANode,
    DrainsByForce, FencesANode, FindsANode, FindsChanges, FindsOperators, FollowsSettings,
    ForgetsAQuestion, GivesACloudToken, IsElected, IssuesAToken, JoinsByTheAccount,
    KeepsATokenForAMachine, KeepsUserData, LearnsHowToJoin, ListsExporters, MakesARuntimeClass,
    NamesTwoBudgets, ReadsCluster, ReadsLayers, ReadsTheKey, ReportsANode, ReportsARefusal,
    RollsAPoolBack, RunsACanary, SeesEverything, ShowsAMachine, ShowsThePool, SurveysTheCluster,
};
use dormer_proto::machine::{Outcome, Task};
use dormer_testkit::{Speaker, await_condition};
use dormer_workers::{
    host::cluster::{CloudToken, Cluster},
    kubernetes::{KubernetesExecutor, Tokens},
};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, api::WatchParams};
use serde_json::{Value, json};
use std::{
    pin::pin,
    sync::atomic::{AtomicU32, Ordering},
};

/// Watches the metadata of one Secret until its first event.
pub(super) async fn first_change(api: &Api<Secret>, name: &str) -> Result<(), kube::Error> {
    let named = WatchParams::default().fields(&format!("metadata.name={name}"));
    let events = api.watch_metadata(&named.timeout(10), "0").await?;
    let mut events = pin!(events);
    events.try_next().await.map(drop)
}

/// dormer's accounts at work in a test's part of the cluster.
pub(super) struct Bench {
    pub(super) site: Site,
    pub(super) watcher: Client,
    pub(super) worker: Client,
    pub(super) approver: Client,
    pub(super) console: World,
    pub(super) executor: KubernetesExecutor,
    pub(super) token: Speaker,
    node: AtomicU32,
}

impl Bench {
    pub(super) async fn new(site: Site) -> Self {
        apply(&site, |_, _| true).await;
        cloud_nodes(&site).await;
        let watcher = site.client(&ours(&site, "dormer-watcher").await).await;
        let worker = site.client(&ours(&site, "dormer-worker").await).await;
        let approver = site.client(&ours(&site, "dormer-approver").await).await;
        let console = World {
            admin: site.client(&ours(&site, "dormer-console").await).await,
        };
        let token = bootstrap_token(&site, "rbac00").await;
        settings(&site, json!({})).await;
        let key = "cloud-private-key";
        let text = json!({"private-key.pem": "a key"});
        for (namespace, name, data) in [
            (
                OPERATOR.to_owned(),
                "node-bootstrapper-token",
                json!({"token": "a token"}),
            ),
            (home(&site), key, text),
        ] {
            let metadata = json!({"name": name, "namespace": namespace});
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata,
                "stringData": data});
            // The shared token may be there: other tests read it, too.
            let _ = site.world.try_create(secret).await;
        }
        let executor = executor(worker.clone(), home(&site)).of_worker();
        let node = AtomicU32::new(0);
        let bench = Self {
            site,
            watcher,
            worker,
            approver,
            console,
            executor,
            token,
            node,
        };
        for right in rights() {
            bench.known(&right, true).await;
        }
        bench
    }

    /// A number that no other step has.
    fn next(&self) -> u32 {
        self.node.fetch_add(1, Ordering::Relaxed)
    }

    /// Does a step; an error is what dormer says, or that nothing came of it.
    pub(super) async fn step(&self, step: Step) -> Result<(), String> {
        let number = self.next();
        match step {
            SeesEverything => {
                everything_is_observed(&self.site, self.watcher.clone(), &self.token, number).await
            }
            FindsOperators => self.finds_operators().await,
            FindsChanges => self.finds_changes().await,
            ReadsLayers => self.reads_layers().await,
            FollowsSettings => self.follows_settings().await,
            AnswersABadSetting => self.bad_setting(number).await,
            IsElected => self.is_elected().await,
            MakesARuntimeClass => self.runtime_class(number).await,
            FencesANode => self.fence(number).await,
            FindsANode => self.find_node(number).await,
            DrainsANode => self.drain(number, false).await,
            DrainsByForce => self.drain(number, true).await,
            NamesTwoBudgets => self.two_budgets(number).await,
            DeletesAMachine => self.delete(number).await,
            ApprovesAClient => {
                let node = format!("rbac-c{number}");
                self.approve(&self.token, Ask::client(&node), &node).await
            }
            ApprovesAServer => {
                let node = format!("rbac-s{number}");
                let by = self
                    .site
                    .plane
                    .user(&format!("system:node:{node}"), Some("system:nodes"));
                self.approve(&by, Ask::serving(&node, &[&node]), &node)
                    .await
            }
            ReportsARefusal => self.refusal(number).await,
            RollsAPoolBack => self.roll_back().await,
            LearnsHowToJoin => self
                .executor
                .bootstrap()
                .await
                .map(drop)
                .map_err(|f| f.message),
            IssuesAToken => self.join_by_token(number, Tokens::Shared).await,
            KeepsATokenForAMachine => self.join_by_token(number, Tokens::Bootstrap).await,
            JoinsByTheAccount => self.join_by_token(number, Tokens::Account).await,
            ForgetsAQuestion => self.forget_question(number).await,
            ReadsCluster => self.reads_cluster().await,
            GivesACloudToken => {
                let machine = self.site.joined(&format!("k{number}")).await;
                let given = self.executor.cloud_token(&machine.name, true).await;
                match given.map_err(|failure| failure.message)? {
                    CloudToken::New { node_uid, due, .. } => {
                        let noted = self
                            .executor
                            .note_cloud_token(&machine.name, &node_uid, due);
                        noted.await.map_err(|failure| failure.message)
                    }
                    CloudToken::Lasts | CloudToken::Due => Err("none was given".into()),
                }
            }
            RunsACanary => self.canary(number).await,
            ReadsTheKey => {
                let api: Api<Secret> = Api::namespaced(self.worker.clone(), &home(&self.site));
                let name = "cloud-private-key";
                let found = api.get(name).await;
                found.map_err(|error| error.to_string())?;
                let noticed = first_change(&api, name).await;
                noticed.map_err(|error| error.to_string())
            }
            ShowsAMachine => {
                let key = (self.site.machines.clone(), format!("shown-{number}"));
                self.shows(WINDOWS_MACHINE, "", &key)
                    .await
                    .map_err(|error| error.to_string())
            }
            ShowsThePool => {
                let shown = self.shows_the_pool(number).await;
                shown.map_err(|error| error.to_string())
            }
            ReportsANode => {
                let machine = self.site.joined(&format!("t{number}")).await;
                let result = self.reports_a_node(&machine.name).await;
                result.map_err(|error| error.to_string())
            }
            KeepsUserData => self.user_data().await.map_err(|error| error.to_string()),
            ListsExporters => self
                .lists_exporters()
                .await
                .map_err(|error| error.to_string()),
            SurveysTheCluster => {
                let surveyed = self.surveys_the_cluster().await;
                surveyed.map_err(|error| error.to_string())
            }
        }
    }

    pub(super) async fn run(&self, task: Task) -> Result<Outcome, String> {
        run(&self.executor, task)
            .await
            .map_err(|failure| failure.message)
    }

    /// Gives a role all its rights but this one (or all of them), and waits until the API server knows.
    pub(super) async fn grant(&self, role: &Right, without: Option<&Right>) {
        let all = rights().into_iter().filter(|right| right.role == role.role);
        let rules: Vec<Value> = all
            .filter(|right| Some(right) != without)
            .map(rule)
            .collect();
        let kind = if role.namespace.is_some() {
            "Role"
        } else {
            "ClusterRole"
        };
        let namespace = role
            .namespace
            .as_deref()
            .map(|name| moved(&self.site, name))
            .unwrap_or_default();
        let name = format!("{}-{}", self.site.name, role.role);
        let kind = ("rbac.authorization.k8s.io", "v1", kind);
        self.site
            .world
            .patch(kind, &namespace, &name, json!({"rules": rules}))
            .await;
        self.known(role, without.is_none()).await;
    }

    /// Waits until the API server knows that this right is given, or taken: its authorizer follows roles by a watch.
    async fn known(&self, right: &Right, given: bool) {
        let account = match &right.role {
            name if name.starts_with("dormer-watcher") => &self.watcher,
            name if name.starts_with("dormer-console") => &self.console.admin,
            name if name.starts_with("dormer-approver") => &self.approver,
            _ => &self.worker,
        };
        let attributes = self.attributes(right);
        let what = format!("{right:?} is {}", if given { "given" } else { "taken" });
        await_condition(&what, PATIENCE, || async {
            allowed(account, &attributes).await == given
        })
        .await;
    }

    /// A right as it is asked for in a review.
    fn attributes(&self, right: &Right) -> Value {
        let (resource, part) = right
            .resource
            .split_once('/')
            .unwrap_or((&right.resource, ""));
        let namespace = right
            .namespace
            .as_deref()
            .map(|name| moved(&self.site, name));
        json!({"namespace": namespace, "group": right.group, "resource": resource,
            "subresource": part, "name": right.name, "verb": right.verb})
    }
}
