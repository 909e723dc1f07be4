//! Lines of `dormer watch` in a pipe: what a change of a run says that its line before did not.

use super::output::one_line;
use dormer_proto::phase::MachinePhase;
use dormer_views::{any_run::AnyRun, machine::Machine};

/// Length of a reason, in characters, up to which a line holds it whole. `dormer why` has the rest.
const REASON_MAX: usize = 80;

/// What a line can say of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    name: String,
    /// State and phase.
    state: String,
    version: Option<String>,
    /// What it waits for, where the phase does not say that.
    waits: Option<String>,
    reason: Option<String>,
}

impl Said {
    /// What is to be said of a run. The state of a rollout depends on its machines, which are among `machines`.
    pub(super) fn of<'a>(run: &AnyRun, machines: impl IntoIterator<Item = &'a Machine>) -> Self {
        let mut state = run.word(machines).to_owned();
        if let Some(phase) = run.phase() {
            state += &format!(" ({phase})");
        }
        let waits_for = || Some(format!("waits for {}", run.waiting_for()?));
        let machine = run.as_machine();
        Self {
            name: run.name().to_owned(),
            state,
            version: machine.and_then(|it| it.version.clone()),
            waits: machine.map_or_else(waits_for, |it| waits(it).or_else(|| serves_not(it))),
            reason: machine.and_then(reason),
        }
    }

    /// The line, whose state begins behind the longest name. Of the version, what the run waits for and the reason it has what
    /// the line `before` did not say. `None`: it would say nothing new.
    pub(super) fn line(&self, before: Option<&Self>, widest: usize) -> Option<String> {
        type Part = fn(&Said) -> Option<&str>;
        let new = |part: Part| part(self).filter(|text| before.and_then(part) != Some(*text));
        let version = new(|it| it.version.as_deref());
        let waits = new(|it| it.waits.as_deref());
        let reason = new(|it| it.reason.as_deref());
        let same_state = before.is_some_and(|it| it.state == self.state);
        // The end of a wait or a trouble is news, too: its line is the state alone.
        let over = |part: Part| part(self).is_none() && before.and_then(part).is_some();
        let ended = over(|it| it.waits.as_deref()) || over(|it| it.reason.as_deref());
        if same_state && !ended && version.or(waits).or(reason).is_none() {
            return None;
        }
        let mut line = format!("{:widest$} {}", self.name, self.state);
        for (sign, part) in [(" ", version), (", ", waits), ("; ", reason)] {
            line.extend(part.into_iter().flat_map(|part| [sign, part]));
        }
        Some(line)
    }
}

/// How many pods a drain has left.
fn waits(machine: &Machine) -> Option<String> {
    let drain = machine.drain.as_ref()?;
    Some(match drain.left {
        1 => "1 pod left".to_owned(),
        left => format!("{left} pods left"),
    })
}

/// What a machine waits for that has joined. In any other state the phase says that.
fn serves_not(machine: &Machine) -> Option<String> {
    let what = machine.waiting_for.as_ref()?;
    (machine.phase == MachinePhase::Serving).then(|| format!("waits for {what}"))
}

/// Reason for the state: of a drain the first of the pods that hold it up, and of a long text its first clause.
fn reason(machine: &Machine) -> Option<String> {
    let blockers = machine.drain.iter().flat_map(|drain| &drain.blockers);
    let first = blockers.map(|it| format!("{}: {}", it.pod, it.why)).next();
    let text = one_line(&first.or_else(|| machine.reason.clone())?);
    let is_long = text.chars().count() > REASON_MAX;
    let clause = text.split_once("; ").filter(|_| is_long);
    Some(clause.map_or_else(|| text.clone(), |(clause, _)| clause.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{machine_with, rollout_with};
    use serde_json::{Value, json};

    fn machine(fields: Value) -> Said {
        Said::of(&AnyRun::Machine(Box::new(machine_with(fields))), [])
    }

    fn line(said: &Said, before: Option<&Said>) -> String {
        said.line(before, 0).unwrap_or_default()
    }

    #[test]
    fn a_change_is_a_line() {
        let probing = machine(json!({"phase": "probing", "phaseText": "probing",
            "waitingFor": "SSH at 10.0.0.9"}));
        assert_eq!(
            line(&probing, None),
            "win-1 Reachable (probing)",
            "the phase says what it waits for"
        );
        let failed = machine(
            json!({"state": "Failed", "phase": "failed", "phaseText": "failed", "version": "v1",
            "waitingFor": "a person's retry, or a change that gives a reason", "reason": "no\nroom"}),
        );
        assert_eq!(
            failed.line(None, 9).as_deref(),
            Some("win-1     Failed v1; no room")
        );
        let down = machine(
            json!({"state": "Joined", "phase": "serving", "phaseText": "serving",
            "waitingFor": "its Node to be Ready"}),
        );
        assert_eq!(
            line(&down, None),
            "win-1 Joined (serving), waits for its Node to be Ready"
        );
        let rollout = rollout_with(json!({"waitingFor": "win-b"}));
        let rollout = Said::of(&AnyRun::Rollout(Box::new(rollout)), []);
        assert_eq!(line(&rollout, None), "windows Idle, waits for win-b");
    }

    #[test]
    fn a_line_does_not_repeat_what_the_one_before_said() {
        let refused = "csr-xgfqr was not approved: it names the address 10.9.9.9";
        let host = machine(
            json!({"phase": "converging-host", "phaseText": "converging the host", "version": "v1",
            "waitingFor": "10.0.0.9 to be configured", "reason": refused}),
        );
        let node = machine(
            json!({"phase": "converging-node", "phaseText": "converging the node", "version": "v1",
            "waitingFor": "10.0.0.9 to be configured for its Node", "reason": refused}),
        );
        assert_eq!(
            line(&host, None),
            format!("win-1 Reachable (converging the host) v1; {refused}")
        );
        assert_eq!(
            line(&node, Some(&host)),
            "win-1 Reachable (converging the node)"
        );
        let over = machine(
            json!({"phase": "converging-node", "phaseText": "converging the node", "version": "v1"}),
        );
        assert_eq!(
            line(&over, Some(&node)),
            "win-1 Reachable (converging the node)",
            "the trouble has ended"
        );
        assert_eq!(over.line(Some(&over), 0), None, "nothing new");
        assert_eq!(
            line(&node, Some(&over)),
            format!("win-1 Reachable (converging the node); {refused}")
        );
    }

    #[test]
    fn a_drain_is_the_number_of_its_pods_and_the_first_that_holds_it_up() {
        let evicting = |left: u64, pods: &[&str]| {
            let blockers = pods.iter().map(|pod| json!({"pod": pod, "why": "no"}));
            let blockers: Vec<Value> = blockers.collect();
            machine(
                json!({"state": "Draining", "phase": "evicting", "phaseText": "evicting pods",
                "waitingFor": "pods to leave: shop/a: no and more", "reason": "shop/a: no; shop/b: no; shop/c: no",
                "drain": {"evicted": 0, "left": left, "force": false, "blockers": blockers}}),
            )
        };
        let first = evicting(3, &["shop/a", "shop/b", "shop/c"]);
        assert_eq!(
            line(&first, None),
            "win-1 Draining (evicting pods), 3 pods left; shop/a: no"
        );
        let then = evicting(2, &["shop/a", "shop/c"]);
        assert_eq!(
            line(&then, Some(&first)),
            "win-1 Draining (evicting pods), 2 pods left"
        );
        let last = evicting(1, &["shop/c"]);
        assert_eq!(
            line(&last, Some(&then)),
            "win-1 Draining (evicting pods), 1 pod left; shop/c: no"
        );
    }

    #[test]
    fn a_long_reason_is_its_first_clause() {
        let long = format!("no Node n appeared; {}", "x".repeat(REASON_MAX));
        let failed = machine(
            json!({"state": "Failed", "phase": "failed", "phaseText": "failed",
            "reason": long}),
        );
        assert_eq!(line(&failed, None), "win-1 Failed; no Node n appeared");
    }
}
