//! WMCO beside dormer for some hours, as while a person tries both. It configures nodes without a drain, and deletes a
//! Machine now and then; `tests/fleet/src/wmco/rules.rs` has WMCO's own sources. While it runs, dormer does nothing to a host.

use super::{
    event::{Undo, WmcoStep, WorldEvent},
    world::{HOUR, MINUTE, SECOND, World},
};
use dormer_proto::{machine::Task, work::Order};

/// From its start until every run knows of it: a message takes up to three seconds, and its run may have no room for a
/// moment.
const KNOWN_AFTER: u64 = 10 * SECOND;
/// How long it configures a host (WMCO's README: about 10 minutes).
const CONFIGURE: u64 = 9 * MINUTE;
/// Machines in a hundred that it deletes, for their other key, where it would configure one.
const DELETED: u64 = 15;

impl World {
    pub(super) fn wmco_does(&mut self, step: WmcoStep) {
        match step {
            WmcoStep::Comes => {
                self.wmco.since = Some(self.now);
                self.wmco.came += 1;
                let lasts = self.chance.between(20 * MINUTE, 2 * HOUR);
                let first = self.chance.between(SECOND, 2 * MINUTE);
                self.later(lasts, WorldEvent::Wmco(WmcoStep::Goes));
                self.later(first, WorldEvent::Wmco(WmcoStep::Works));
                self.pool_changed();
            }
            WmcoStep::Goes => {
                self.wmco.since = None;
                let next = self.chance.between(4 * HOUR, 12 * HOUR);
                self.later(next, WorldEvent::Wmco(WmcoStep::Comes));
                self.pool_changed();
            }
            WmcoStep::Works if self.wmco.since.is_some() => self.wmco_works(),
            // It was stopped.
            WmcoStep::Works => {}
        }
    }

    /// It has one worker, which ends each step before the next.
    fn wmco_works(&mut self) {
        let takes = if self.chance.percent(DELETED) {
            if let Some(uid) = self.a_machine() {
                self.delete_machine(&uid);
            }
            MINUTE
        } else {
            if let Some(node) = self.a_node() {
                self.wmco_configures(&node);
            }
            CONFIGURE
        };
        let pause = self.chance.between(5 * SECOND, 5 * MINUTE);
        self.later(takes + pause, WorldEvent::Wmco(WmcoStep::Works));
    }

    /// Cordons a Node, restarts the services of its host, and uncordons it, also if another client had cordoned it. One that is stopped
    /// in the middle leaves the cordon to an administrator, who ends it as late.
    fn wmco_configures(&mut self, node: &str) {
        let uid = self.nodes.get(node).map(|node| node.machine.clone());
        let now = self.now;
        let machine = uid.and_then(|uid| self.machines.get_mut(&uid));
        let Some(machine) = machine.filter(|machine| machine.answers(now)) else {
            return;
        };
        machine.host.installed = Some("wmco".to_owned());
        let uid = machine.uid.clone();
        let stopped = !machine.host.kubelet;
        self.change_node(node, |node| node.cordoned = true);
        self.cut(node, true);
        self.later(2 * MINUTE, WorldEvent::Undo(Undo::Cut(node.to_owned())));
        self.later(CONFIGURE, WorldEvent::Undo(Undo::Cordon(node.to_owned())));
        if stopped {
            self.later(2 * MINUTE, WorldEvent::Kubelet(uid));
        }
    }

    /// The law: while it runs, and every run knows that, no order goes to a host or takes its Node away. A token is closed,
    /// and what is only read is read.
    pub(super) fn judge_beside_wmco(&mut self, order: &Order) {
        let known = |since: u64| self.now - since >= KNOWN_AFTER;
        if !self.wmco.since.is_some_and(known) || self.wmco.disturbed.is_some() {
            return;
        }
        let disturbs = match &order.body {
            Task::CloseFence { .. }
            | Task::ApproveCsr { .. }
            | Task::FindNode { .. }
            | Task::ForgetHost { .. }
            | Task::SetPayload { .. } => false,
            Task::Probe { .. }
            | Task::Plan { .. }
            | Task::Converge { .. }
            | Task::Reboot { .. }
            | Task::TearDown { .. }
            | Task::MarkNode { .. }
            | Task::OpenFence { .. }
            | Task::Evict { .. }
            | Task::DeleteMachine { .. } => true,
        };
        if disturbs {
            let task = order.body.name();
            let run = &order.task.run;
            self.wmco.disturbed = Some(format!("{task} of {run}"));
        }
    }
}
