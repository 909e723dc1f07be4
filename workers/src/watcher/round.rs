//! Round of the watcher, which is one epoch: a full list, then watches, until a gap or the next list.

use super::{
    ApiFailure, Watcher,
    cluster::{Listing, ObjectChange, Resource},
    csr,
    messages::MessageWriter,
    noticed::{self, Due, Noticed, Rereads},
    objects::{self, UnreadableObject},
    sources,
    status::SourceState,
    view::{Kind, ObservedObject, View},
};
use crate::{
    kubernetes::{changing, watched_settings},
    pool::Installed,
    port::{Facts, PortError},
};
use dormer_proto::{machine::MachineApi, work::FactMessage};
use kube::api::DynamicObject;
use std::{collections::VecDeque, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, MissedTickBehavior},
};

/// Most messages published in one call.
const PUBLISH_MAX: usize = 256;
/// How long the engine's side may take to answer.
const PORT_LIMIT: Duration = Duration::from_secs(60);
/// Most changes taken together.
const CHANGES_MAX: usize = 1_024;
/// Parts into which the repeats of one round are divided.
const PARTS: u32 = 60;
/// Parts after which the watcher checks again for another operator for Windows hosts.
const OTHER_OPERATORS_EVERY_PARTS: u32 = 5;
/// Parts after which the Windows builds among the nodes are checked again.
const CLASSES_EVERY_PARTS: u32 = 5;
/// Parts after which the watcher sends changed replica counts of MachineSets to the rollout, if nothing else of them
/// changed. A message about a set names its machines, so it is large.
const NUMBERS_EVERY_PARTS: u32 = 10;
/// Parts after which the facts of a new machine are repeated: the first ones may have arrived before its run began.
const NEW_AGAIN_AFTER_PARTS: [u32; 2] = [1, 5];

struct Round {
    view: View,
    writer: MessageWriter,
    /// New machines whose facts are repeated, with the due time.
    new_machines: VecDeque<(Instant, String)>,
    /// UID of the last machine whose facts were repeated.
    cursor: String,
    /// Parts of the repeats that are done.
    parts_done: u32,
    part_length: Duration,
    owners_due: Instant,
    rereads: Rereads,
}

impl<F: Facts, I: Installed> Watcher<F, I> {
    /// Lists, publishes, and watches. `Ok`: it is time for the next list.
    pub(super) async fn round(&mut self) -> Result<(), ApiFailure> {
        let beginning = answered(self.facts.begin()).await?;
        let mut view = View::new(&beginning.live);
        let served = sources::served(&self.client).await?;
        let unserved = self.sources.begin(&served, self.options.relist);
        (view.machines_hidden, view.sets_hidden) = (unserved, unserved);
        let resources = Resource::all(&self.client, &self.options, &served);
        self.settings.forget();
        self.hosts.forget();
        let mut from = Vec::new();
        for resource in &resources {
            let listing = resource
                .list(|kind, object| self.observe(&mut view, kind, object))
                .await?;
            from.push(self.source_listed(&mut view, resource, listing));
        }
        self.published.begin_epoch();
        // Subscribed before the first read, so that no change is missed.
        let installed = self.catalog.changed();
        let writer = MessageWriter::new(
            beginning,
            &self.options.pool,
            &self.options.namespace,
            self.rollout.clone(),
        );
        self.servers.refresh(&self.client).await;
        self.surroundings.refresh(&*self.catalog).await;
        self.refresh_other_operators().await;
        self.refresh_changing().await;
        let mut watches = JoinSet::new();
        let rereads = self.notice_changes(&mut watches);
        let mut round = Round {
            view,
            writer,
            new_machines: VecDeque::new(),
            cursor: String::new(),
            parts_done: 0,
            part_length: (self.options.repeat / PARTS).max(Duration::from_millis(10)),
            owners_due: Instant::now(),
            rereads,
        };
        self.resolve_settings(&mut round).await;
        let messages = round
            .writer
            .everything(&mut round.view, &mut self.published);
        round.view.owners_changed = false;
        self.publish(messages).await?;
        self.listed(&mut round);
        self.classes.forget();
        self.keep_classes(&round).await;
        self.hosts.keep(&round.view).await;
        let (to, changes) = mpsc::channel(CHANGES_MAX);
        let every = self.options.repeat / 2;
        watches.spawn(sources::follow(
            self.client.clone(),
            served,
            every,
            to.clone(),
        ));
        for (resource, from) in resources.into_iter().zip(from) {
            watches.spawn(resource.follow(from, to.clone()));
        }
        drop(to);
        self.follow(round, changes, installed).await
    }

    /// Watches what the cluster's settings, and its other changes, were just read from.
    fn notice_changes(&self, watches: &mut JoinSet<()>) -> Rereads {
        let settings = Due {
            settings: true,
            changes: false,
        };
        let changes = Due {
            settings: false,
            changes: true,
        };
        let machines = self.options.machines.as_deref();
        let of_settings = watched_settings(&self.client, &self.options.namespace).into_iter();
        let of_settings = of_settings.map(|watched| {
            // The MachineConfigPool is read for both.
            let changes = watched.name.as_deref() == Some(changing::WORKER_POOL);
            (
                watched,
                Due {
                    changes,
                    ..settings
                },
            )
        });
        let of_changes = changing::watched(&self.client, machines, self.cluster_api()).into_iter();
        let of_changes = of_changes.map(|it| (it, changes));
        let all: Vec<_> = of_settings.chain(of_changes).collect();
        let noticed = Noticed::before(all.iter().map(|(it, _)| it));
        let (to, noticed) = watch::channel(noticed);
        for (watched, of) in all {
            watches.spawn(noticed::follow(watched, of, to.clone()));
        }
        Rereads::begin(noticed, self.options.repeat)
    }

    /// Version of Cluster API whose Machines are watched, with their namespace.
    fn cluster_api(&self) -> Option<(MachineApi, Option<&str>)> {
        let namespace = self.options.cluster_machines.as_deref();
        self.sources.cluster_api().map(|api| (api, namespace))
    }

    /// Records the resourceVersion of a list, from which to watch.
    fn source_listed(
        &mut self,
        view: &mut View,
        resource: &Resource,
        listing: Listing,
    ) -> Option<String> {
        let (from, state) = match listing {
            Listing::From(from) => {
                view.latest = view.latest.max(from.parse().unwrap_or_default());
                (Some(from), SourceState::Watched)
            }
            Listing::Absent => (None, SourceState::Absent),
            Listing::Forbidden(why) => (None, SourceState::Forbidden(why.0)),
        };
        if resource.kind == Kind::Pool && from.is_none() {
            self.settings.kind_absent();
        }
        if resource.kind.is_source() {
            // Discovery has the group: who answers 404 does not know it yet, or no more.
            let hidden = state != SourceState::Watched;
            match resource.kind {
                Kind::Machine(_) => view.machines_hidden |= hidden,
                Kind::Set(_) => view.sets_hidden |= hidden,
                _ => {}
            }
            self.sources.is(resource.kind, &resource.what, state);
        }
        from
    }

    async fn follow(
        &mut self,
        mut round: Round,
        mut changes: mpsc::Receiver<ObjectChange>,
        mut installed: watch::Receiver<u64>,
    ) -> Result<(), ApiFailure> {
        let mut parts =
            tokio::time::interval_at(Instant::now() + round.part_length, round.part_length);
        parts.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let relist = tokio::time::sleep(self.options.relist);
        tokio::pin!(relist);
        let mut batch = Vec::new();
        loop {
            let messages = tokio::select! {
                () = &mut relist => return Ok(()),
                count = changes.recv_many(&mut batch, CHANGES_MAX) => {
                    if count == 0 {
                        return Err(ApiFailure("every watch has ended".to_owned()));
                    }
                    for change in batch.drain(..) {
                        self.apply(&mut round, change)?;
                    }
                    self.changed(&mut round).await
                }
                () = wait_for_change(&mut installed) => {
                    self.settings.stale();
                    self.changed(&mut round).await
                }
                due = round.rereads.due() => self.reread(&mut round, due).await,
                _ = parts.tick() => {
                    let mut messages = self.part(&mut round);
                    self.hosts.keep(&round.view).await;
                    if round.parts_done.is_multiple_of(CLASSES_EVERY_PARTS) {
                        self.keep_classes(&round).await;
                    }
                    if round.parts_done.is_multiple_of(OTHER_OPERATORS_EVERY_PARTS)
                        && self.refresh_other_operators().await
                    {
                        messages.extend(self.changed(&mut round).await);
                    }
                    if round.parts_done == 0 && self.servers.refresh(&self.client).await {
                        self.settings.stale();
                        messages.extend(self.changed(&mut round).await);
                    }
                    messages
                }
            };
            self.publish(messages).await?;
        }
    }

    /// Reads again what is due. Versions that follow are noticed as those of a payload are.
    async fn reread(&mut self, round: &mut Round, due: Due) -> Vec<FactMessage> {
        if due.settings {
            self.surroundings.refresh(&*self.catalog).await;
        }
        let has_changed = due.changes && self.refresh_changing().await;
        round.rereads.done(due);
        match has_changed {
            true => self.changed(round).await,
            false => Vec::new(),
        }
    }

    /// Checks whether another operator for Windows hosts runs. `true`: runs get new settings.
    async fn refresh_other_operators(&mut self) -> bool {
        let neighbour = self.other_operators.refresh(&self.client).await.clone();
        let unread = self.other_operators.unread().map(str::to_owned);
        self.status.send_if_modified(|status| {
            let runs = neighbour.runs().map(str::to_owned);
            let differs = status.neighbour != runs || status.neighbour_unread != unread;
            (status.neighbour, status.neighbour_unread) = (runs, unread);
            differs
        });
        self.settings.found(&neighbour)
    }

    /// Checks which other operations change the cluster. `true`: runs get new settings.
    async fn refresh_changing(&mut self) -> bool {
        let machines = self.options.machines.as_deref();
        let cluster = self.cluster_api();
        let before = self.settings.changing();
        let seen = changing::check(&self.client, machines, cluster, before).await;
        if let Some(why) = seen.unread.as_ref()
            && seen.unread != self.settings.changing().unread
        {
            tracing::warn!("what else changes the cluster is unknown: {why}");
        }
        self.settings.found_changing(&seen)
    }

    async fn keep_classes(&mut self, round: &Round) {
        let builds = round
            .view
            .nodes
            .values()
            .filter_map(|node| node.build.clone());
        self.classes.keep(&self.client, builds.collect()).await;
    }

    fn apply(&mut self, round: &mut Round, change: ObjectChange) -> Result<(), ApiFailure> {
        let before = (self.settings.generation(), round.view.machines.len());
        match change {
            ObjectChange::Updated(kind, object) => self.observe(&mut round.view, kind, *object),
            ObjectChange::Lost(kind, object) => self.lose(&mut round.view, kind, &object),
            ObjectChange::Denied(kind, what, why) => {
                self.sources.is(kind, &what, SourceState::Forbidden(why.0));
            }
            ObjectChange::Gap(trouble) => return Err(trouble),
        }
        // The pool names its layers, and a health check selects machines.
        round.rereads.soon(Due {
            settings: self.settings.generation() != before.0,
            changes: round.view.machines.len() != before.1,
        });
        Ok(())
    }

    /// The messages that follow from what changed.
    async fn changed(&mut self, round: &mut Round) -> Vec<FactMessage> {
        let mut messages = Vec::new();
        if self.resolve_settings(round).await {
            messages.extend(round.writer.pool_changes(&round.view, &mut self.published));
        }
        messages.extend(round.writer.changes(&mut round.view, &mut self.published));
        messages.extend(self.owners(round));
        round.remember_new();
        messages
    }

    /// Owner facts are large, so they are sent at most once in a part.
    fn owners(&mut self, round: &mut Round) -> Vec<FactMessage> {
        let now = Instant::now();
        if !round.view.owners_changed || now < round.owners_due {
            return Vec::new();
        }
        round.view.owners_changed = false;
        round.owners_due = now + round.part_length;
        round
            .writer
            .write_rollout(&round.view, &mut self.published, false)
    }

    /// Messages of the next part of a round. A whole round repeats every fact to every run once.
    fn part(&mut self, round: &mut Round) -> Vec<FactMessage> {
        let mut messages = round.writer.pool_due(&round.view, &mut self.published);
        messages.extend(self.owners(round));
        let now = Instant::now();
        while let Some((_, uid)) = round.new_machines.pop_front_if(|(due, _)| *due <= now) {
            messages.extend(round.writer.repeats_for(&round.view, &self.published, &uid));
        }
        for _ in 0..round.writer.live().div_ceil(PARTS as usize) {
            let Some(uid) = round.writer.next_after(&round.cursor) else {
                round.cursor.clear();
                break;
            };
            messages.extend(round.writer.repeats_for(&round.view, &self.published, &uid));
            round.cursor = uid;
        }
        round.parts_done = (round.parts_done + 1) % PARTS;
        if round.parts_done.is_multiple_of(NUMBERS_EVERY_PARTS)
            && std::mem::take(&mut round.view.numbers_changed)
        {
            messages.extend(
                round
                    .writer
                    .write_rollout(&round.view, &mut self.published, false),
            );
        }
        if round.parts_done == 0 || NEW_AGAIN_AFTER_PARTS.contains(&round.parts_done) {
            messages.extend(round.writer.repeats_for_rollout(&self.published));
        }
        self.show(round);
        messages
    }

    /// Resolves the pool's settings. Returns whether runs get new ones.
    async fn resolve_settings(&mut self, round: &mut Round) -> bool {
        if !self
            .settings
            .resolve(&*self.catalog, self.servers.api_servers())
        {
            return false;
        }
        self.settings.answer().await;
        let refused = self.settings.refused.as_ref().map(ToString::to_string);
        let held = self.settings.published().held_in_full();
        self.status.send_if_modified(|status| {
            let differs = status.pool_refused != refused || status.grants_held != held;
            (status.pool_refused, status.grants_held) = (refused, held);
            differs
        });
        let settings = self.settings.published();
        round.writer.set_pool(settings, round.view.latest)
    }

    fn listed(&mut self, round: &mut Round) {
        round.remember_new();
        self.status.send_modify(|status| {
            status.epoch = round.writer.beginning.epoch;
            status.listed = Some(jiff::Timestamp::now());
            status.error = None;
            status.failing = None;
        });
        self.show(round);
        tracing::info!(
            epoch = round.writer.beginning.epoch.0,
            machines = round.view.machines.len(),
            nodes = round.view.nodes.len(),
            "listed everything"
        );
    }

    fn show(&self, round: &Round) {
        let machines = &round.view.machines;
        let unreadable = self.unreadable.count;
        let sources = self.sources.all();
        let hosts = self.hosts.findings.clone();
        let settings = round.rereads.state();
        self.status.send_if_modified(|status| {
            let before = status.clone();
            status.machines = machines.values().filter(|m| m.windows).count();
            status.live = round.writer.live();
            status.elsewhere = machines.values().filter(|m| !m.counts()).count();
            let ignored = machines.values().filter(|m| m.counts() && m.fact.ignored);
            status.ignored = ignored.count();
            status.sources = sources;
            status.hosts_amiss = hosts;
            status.settings = settings;
            status.foreign_csrs = round.view.foreign_csrs();
            status.unreadable = unreadable;
            *status != before
        });
    }

    fn observe(&mut self, view: &mut View, kind: Kind, object: DynamicObject) {
        let uid = object.metadata.uid.clone();
        let name = object.metadata.name.clone();
        match self.read(kind, object) {
            Ok(Some(ObservedObject::Machine(host)))
                if kind == Kind::Machine(MachineApi::Host)
                    && !self.hosts.are_ours(&host.fact.machine.uid) =>
            {
                view.disown(&host.fact.machine.uid);
            }
            Ok(Some(observed)) => {
                if let ObservedObject::Machine(machine) = &observed {
                    self.unreadable.elsewhere(machine);
                }
                if !view.observe(observed) {
                    let full = UnreadableObject {
                        field: "object",
                        problem: "exceeds the limit of objects of its kind".to_owned(),
                    };
                    self.unreadable.say(kind, name.as_deref(), &full);
                }
            }
            Ok(None) => {}
            Err(odd) => {
                self.unreadable.say(kind, name.as_deref(), &odd);
                if let (Kind::Machine(_), Some(uid)) = (kind, uid) {
                    view.veil(&uid);
                }
            }
        }
    }

    fn read(
        &mut self,
        kind: Kind,
        object: DynamicObject,
    ) -> Result<Option<ObservedObject>, UnreadableObject> {
        Ok(match kind {
            Kind::Machine(api) => {
                if api == MachineApi::Host {
                    self.hosts.observe(&object);
                }
                Some(ObservedObject::of(objects::machine(api, object)?))
            }
            Kind::Set(api) => Some(ObservedObject::Set(objects::machine_set(api, object)?)),
            Kind::Node => Some(ObservedObject::Node(objects::node(object)?)),
            Kind::Csr => csr::csr(object)?.map(ObservedObject::Csr),
            Kind::Pool => {
                let resource = objects::resource(&object.metadata)?;
                self.settings.observe(object, resource);
                None
            }
            Kind::PoolMap => {
                self.settings.find_map(object.metadata);
                None
            }
            Kind::Instances => {
                self.hosts.observe_map(object);
                None
            }
        })
    }

    fn lose(&mut self, view: &mut View, kind: Kind, object: &DynamicObject) {
        let meta = &object.metadata;
        if let (Kind::Machine(MachineApi::Host), Some(uid)) = (kind, &meta.uid) {
            self.hosts.lose(uid);
        }
        match (objects::uid(meta), objects::resource(meta)) {
            (Ok(uid), _) if kind == Kind::Pool => self.settings.lose(&uid),
            (Ok(uid), _) if kind == Kind::PoolMap => self.settings.lose_map(&uid),
            (Ok(_), _) if kind == Kind::Instances => self.hosts.lose_map(),
            (Ok(uid), Ok(resource)) => view.lose(kind, &uid, resource),
            (Err(odd), _) | (_, Err(odd)) => self.unreadable.say(kind, meta.name.as_deref(), &odd),
        }
    }

    async fn publish(&self, messages: Vec<FactMessage>) -> Result<(), ApiFailure> {
        let mut rest = messages.into_iter();
        loop {
            let some: Vec<_> = rest.by_ref().take(PUBLISH_MAX).collect();
            if some.is_empty() {
                return Ok(());
            }
            answered(self.facts.publish(some)).await?;
        }
    }
}

impl Round {
    /// Schedules repeated facts for machines whose runs may have begun just now.
    fn remember_new(&mut self) {
        let now = Instant::now();
        let started = std::mem::take(&mut self.writer.started);
        for after in NEW_AGAIN_AFTER_PARTS {
            let due = now + self.part_length * after;
            self.new_machines
                .extend(started.iter().map(|uid| (due, uid.clone())));
        }
        // Sorted, since what began before may be due later.
        self.new_machines
            .make_contiguous()
            .sort_by_key(|(due, _)| *due);
    }
}

/// Waits for an answer of the engine's side, with a time limit.
async fn answered<T>(asked: impl Future<Output = Result<T, PortError>>) -> Result<T, ApiFailure> {
    let slow = |_| ApiFailure("the engine does not answer: nothing for a minute".to_owned());
    let answer = tokio::time::timeout(PORT_LIMIT, asked)
        .await
        .map_err(slow)?;
    answer.map_err(|error| ApiFailure(error.to_string()))
}

/// Waits for a change; for ever once there can be none.
async fn wait_for_change(installed: &mut watch::Receiver<u64>) {
    if installed.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
