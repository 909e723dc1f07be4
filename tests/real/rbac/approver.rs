//! Steps of the approver.

use super::bench::Bench;
use crate::real::{
    accounts::home,
    ask::{Ask, Kubelet, expectation, known},
    cluster::{Kind, PATIENCE, executor_with, run, run_of},
};
use dormer_proto::machine::{MachineRef, Outcome, Task};
use dormer_testkit::{Speaker, await_condition};
use dormer_workers::{
    host::cluster::Cluster,
    kubernetes::{KubernetesExecutor, Tokens, join, token},
};
use serde_json::json;
use tokio::sync::mpsc;

const SECRET: Kind = ("", "v1", "Secret");

impl Bench {
    /// The approver's executor: with one token for all machines, or with one for each.
    fn approver(&self, tokens: Tokens) -> KubernetesExecutor {
        executor_with(tokens, self.approver.clone(), home(&self.site)).of_approver()
    }

    /// Does something while the approver answers. What the approver lacks is an error.
    async fn while_it_answers(
        &self,
        tokens: Tokens,
        doing: impl Future<Output = Result<(), String>>,
    ) -> Result<(), String> {
        let (tell, mut lacks) = mpsc::unbounded_channel();
        let giving = Box::pin(self.approver(tokens).run_token_grants(move |lack| {
            lack.map(|why| tell.send(why));
        }));
        tokio::select! {
            done = doing => done,
            Some(why) = lacks.recv() => Err(why),
            never = giving => match never {},
        }
    }

    /// A token for a machine: asked for twice, answered, and taken away when its Node is marked.
    pub(super) async fn join_by_token(&self, number: u32, tokens: Tokens) -> Result<(), String> {
        let short = match tokens {
            Tokens::Shared => "h",
            Tokens::Bootstrap => "k",
            Tokens::Account => "a",
        };
        let machine = self.site.provisioned(&format!("{short}{number}")).await;
        // A test's thread has no stack for all of it at once.
        let doing = Box::pin(self.asks_and_joins(&machine, tokens));
        self.while_it_answers(tokens, doing).await
    }

    async fn asks_and_joins(&self, machine: &MachineRef, tokens: Tokens) -> Result<(), String> {
        let world = &self.site.world;
        let home = home(&self.site);
        let uid = &machine.uid;
        let join = join::namespace(&home);
        let secret = format!("bootstrap-token-{}", token::id(&home, uid, 0));
        let own = tokens == Tokens::Bootstrap;
        let asked = async || {
            let token = self.executor.token(machine).await;
            token.map_err(|failure| failure.message)
        };
        let first = asked().await?;
        if own {
            let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(5);
            let soon = json!({"stringData": {"expiration": soon.to_string()}});
            world.patch(SECRET, "kube-system", &secret, soon).await;
        }
        assert_eq!(first, asked().await?, "it stays, or is prolonged");
        if tokens == Tokens::Account {
            let speaker = Speaker::Token(first.to_string());
            known(&self.site, &speaker, true).await;
            let ask = Ask::client(&machine.name);
            Box::pin(self.approve_of(machine, &speaker, tokens, ask)).await?;
        }
        self.site.node(&machine.name).await;
        self.site.link(machine).await;
        let mark = Task::MarkNode {
            machine: machine.clone(),
            node: machine.name.clone(),
            version: "v1".into(),
            pin: None,
            expect: None,
        };
        run_of(&self.executor, uid, mark)
            .await
            .map_err(|failure| failure.message)?;
        if world.get(SECRET, &join, &join::name(uid)).await.is_some() {
            return Err("its question is still there".into());
        }
        await_condition("the token is taken away", PATIENCE, || async {
            !own || world.get(SECRET, "kube-system", &secret).await.is_none()
        })
        .await;
        Ok(())
    }

    /// An answer that no client deletes is deleted by itself.
    pub(super) async fn forget_question(&self, number: u32) -> Result<(), String> {
        let home = home(&self.site);
        let (namespace, name) = (
            join::namespace(&home),
            join::name(&format!("gone-{number}")),
        );
        let labels =
            json!({"app.kubernetes.io/managed-by": "dormer", "app.kubernetes.io/instance": home});
        let past =
            json!({join::ASKED: "1", join::ANSWERED: "1", join::UNTIL: "2026-01-01T00:00:00Z"});
        let metadata =
            json!({"name": name, "namespace": namespace, "labels": labels, "annotations": past});
        let world = &self.site.world;
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "type": join::TYPE, "metadata": metadata});
        world.create(secret).await;
        let done = self
            .while_it_answers(Tokens::Shared, async {
                await_condition("it is gone", PATIENCE, || async {
                    world.get(SECRET, &namespace, &name).await.is_none()
                })
                .await;
                Ok(())
            })
            .await;
        world.delete(SECRET, &namespace, &name).await;
        done
    }

    pub(super) async fn approve(&self, by: &Speaker, ask: Ask, node: &str) -> Result<(), String> {
        let short = node.strip_prefix("rbac-").expect("the site's");
        let machine = self.site.provisioned(short).await;
        self.approve_of(&machine, by, Tokens::Shared, ask).await
    }

    async fn approve_of(
        &self,
        machine: &MachineRef,
        by: &Speaker,
        tokens: Tokens,
        ask: Ask,
    ) -> Result<(), String> {
        let csr = machine.name.clone();
        let kubelet = Kubelet::new(&self.site);
        kubelet.ask(by, &csr, ask).await.expect("it may ask");
        let task = Task::ApproveCsr {
            csr: csr.clone(),
            expect: expectation(machine),
        };
        let done = run_of(&self.approver(tokens), &machine.uid, task).await;
        let done = done.map_err(|failure| failure.message)?;
        assert_eq!(done, Outcome::CsrApproved { csr });
        Ok(())
    }

    /// Two refusals of one request: an Event, and its count.
    pub(super) async fn refusal(&self, number: u32) -> Result<(), String> {
        let name = format!("rbac-r{number}");
        let kubelet = Kubelet::new(&self.site);
        kubelet
            .ask(&self.token, &name, Ask::client("rbac-other"))
            .await
            .expect("it may ask");
        let machine = self.site.provisioned(&format!("r{number}")).await;
        let task = Task::ApproveCsr {
            csr: name.clone(),
            expect: expectation(&machine),
        };
        // Events are counted by the executor that wrote them: this one knows of none yet.
        let executor = self.approver(Tokens::Shared);
        for _ in 0..2 {
            let done = run(&executor, task.clone())
                .await
                .map_err(|failure| failure.message)?;
            assert!(matches!(done, Outcome::CsrRefused { .. }), "{done:?}");
        }
        let events = self
            .site
            .world
            .list(("events.k8s.io", "v1", "Event"), "default")
            .await;
        let event = events
            .into_iter()
            .find(|event| event["regarding"]["name"] == name.as_str());
        match event {
            None => Err("there is no Event".into()),
            Some(event) if event["series"]["count"] == 2 => Ok(()),
            Some(event) => Err(format!("it is not counted: {event}")),
        }
    }
}
