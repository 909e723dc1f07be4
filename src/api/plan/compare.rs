//! Comparison of a pool's machines with a plan's candidate: the changes, their class and their method.

use super::PlanRenderer;
use crate::views::template_difference;
use dormer_profile::{
    document::ChangeClass,
    drift::{Difference, between, change_class},
    layers::{Layer, stack},
    payload::Manifest,
    problem::Problems,
    profile::Profile,
    version::version_in,
};
use dormer_proto::{
    machine,
    pool::{Desired, Terms, payload_of},
};
use dormer_views::plan::{self, MachinePlan};
use dormer_workers::{
    catalog::InstalledVersion,
    host::cluster::Bootstrap,
    pool::{Installed, paths},
};
use dormer_workflows::machine::{ChangeStrategy, State};

/// Most differences of one machine that are listed. The rest is a count.
const NAMED_MAX: usize = 200;

/// Candidate of a plan: a payload that is not installed, an additional layer, or neither: the pool's present
/// settings.
#[derive(Debug, Default)]
pub(crate) struct Candidate {
    pub(crate) payload: Option<Manifest>,
    pub(crate) layer: Option<Layer>,
}

impl Candidate {
    /// Profile and payload that a machine would get, and their version.
    fn over(&self, found: &InstalledVersion) -> Result<(Profile, Manifest, String), Problems> {
        let manifest = self
            .payload
            .clone()
            .unwrap_or_else(|| found.payload.manifest.clone());
        let profile = match &self.layer {
            Some(layer) if layer.fits(&found.profile.name) => {
                stack(&[Layer::of(&found.profile), layer.clone()])?
            }
            _ => found.profile.as_ref().clone(),
        };
        let version = version_in(&found.cluster_config, &profile, &manifest);
        Ok((profile, manifest, version))
    }
}

/// Method by which a machine would change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeMethod {
    /// Only the Node is marked.
    Mark,
    /// In place while the node serves.
    Live,
    /// With the lease.
    Leased(ChangeStrategy),
}

/// Changes of one machine, and the method if it is known.
///
/// # Errors
///
/// The candidate cannot be rendered: each location with its reason.
pub(crate) fn compare(
    renderer: &PlanRenderer,
    bootstrap: &Bootstrap,
    state: &State,
    candidate: &Candidate,
) -> Result<(MachinePlan, Option<ChangeMethod>), String> {
    let mut plan = MachinePlan {
        name: state.machine_ref().name,
        node: state.node_name(),
        from: state.version.clone(),
        template_differs: state
            .view()
            .template
            .into_iter()
            .map(template_difference)
            .collect(),
        ..MachinePlan::default()
    };
    if leaves(state) {
        plan.leaves = true;
        return Ok((plan, None));
    }
    let Some(desired) = state.desired() else {
        let why = match state.in_service {
            true => "its pool names no payload for it",
            false => "what it gets is known once its host was read and its pool names a payload",
        };
        plan.unknown = Some(why.into());
        return Ok((plan, None));
    };
    let wanted = match renderer.catalog.find(desired) {
        Ok(found) => found,
        Err(failure) => {
            plan.unknown = Some(failure.message);
            return Ok((plan, None));
        }
    };
    let (profile, manifest, to) = candidate.over(&wanted).map_err(|e| e.to_string())?;
    plan.to = Some(to.clone());
    let after = renderer.documents(
        bootstrap,
        state,
        (&profile, &manifest, &wanted.cluster_config),
        &to,
    )?;
    if state.version.as_deref() == Some(to.as_str()) {
        return Ok((plan, None));
    }
    let neighbour = state.neighbour().map(str::to_owned);
    let halted = state.halts().first().map(ToString::to_string);
    let stands = neighbour.or(halted);
    plan.not_allowed =
        stands.or_else(|| bar(renderer, state, (&profile.name, &manifest), candidate));
    let before = match carried(renderer, state) {
        Ok(found) => found,
        Err(why) => {
            plan.unknown = Some(why);
            return Ok((plan, None));
        }
    };
    let present = state.version.as_deref().unwrap_or_default();
    let parts = (
        before.profile.as_ref(),
        &before.payload.manifest,
        before.cluster_config.as_ref(),
    );
    let before = renderer.documents(bootstrap, state, parts, present)?;
    let mut found = Vec::new();
    for (from, to) in before.iter().zip(&after) {
        found.extend(between(from, to));
    }
    let method = add_changes(&mut plan, state, &found);
    Ok((plan, Some(method)))
}

/// Whether its Machine is being deleted: it changes no more, also where its version is not the wanted one.
fn leaves(state: &State) -> bool {
    let machine = state.machine.as_ref();
    state.phase.leaving() || machine.is_some_and(|machine| machine.deleting)
}

/// Version that a machine has now, if this process knows it.
fn carried(renderer: &PlanRenderer, state: &State) -> Result<InstalledVersion, String> {
    let Some(version) = state.version.clone() else {
        return Err(match state.in_service {
            true => "its version is unknown, so a worker will compare its host".into(),
            false => "it is no node yet, and will be configured with the wanted version".into(),
        });
    };
    let payload = payload_of(&version).unwrap_or_default().to_owned();
    renderer
        .catalog
        .find(&Desired { version, payload })
        .map_err(|_| {
            "this process does not have its version, so a worker will compare its host".to_owned()
        })
}

/// Reason for which a machine may not go to the version now.
fn bar(
    renderer: &PlanRenderer,
    state: &State,
    (profile, manifest): (&str, &Manifest),
    candidate: &Candidate,
) -> Option<String> {
    if candidate.payload.is_none() {
        return state.change_refusal();
    }
    let from = payload_of(state.version.as_deref()?)?;
    let may_follow = manifest.may_follow.clone();
    let edges = renderer.catalog.edges(&manifest.version);
    let installed = edges.is_some();
    let terms = Terms {
        paths: paths(
            &manifest.version,
            &may_follow,
            (&renderer.catalog, profile),
            None,
        ),
        may_follow,
        expired: edges.and_then(|edges| edges.expired),
        ..Terms::default()
    };
    let bars = terms.bars(&manifest.version, from);
    if installed {
        bars.or_else(|| state.change_refusal())
    } else {
        bars
    }
}

fn add_changes(plan: &mut MachinePlan, state: &State, found: &[Difference]) -> ChangeMethod {
    let class = change_class(found);
    let method = match class {
        None => ChangeMethod::Mark,
        Some(ChangeClass::Live) => ChangeMethod::Live,
        Some(class) => ChangeMethod::Leased(state.how(of_machine(class))),
    };
    plan.class = class.map(|class| shown(class).into());
    if let ChangeMethod::Leased(by) = method {
        plan.drain_skipped = state.drain_skipped(by);
    }
    plan.how = Some(match (method, &plan.drain_skipped) {
        (_, Some(why)) => format!("with the lease: its Machine replaced, not drained: {why}"),
        (ChangeMethod::Mark, _) => "only its Node is marked with the new version".to_owned(),
        (ChangeMethod::Live, _) => "in place, without the lease".to_owned(),
        (ChangeMethod::Leased(by), _) => how(by).to_owned(),
    });
    let named = found.iter().take(NAMED_MAX).map(|one| plan::ItemChange {
        item: one.id.clone(),
        class: shown(one.change).into(),
        detail: one.detail.clone(),
    });
    plan.changes = named.collect();
    plan.changes_in_all = found.len() as u64;
    method
}

fn how(how: ChangeStrategy) -> &'static str {
    match how {
        ChangeStrategy::Recreate => "with the lease: drained, its Machine replaced",
        ChangeStrategy::InPlace => "with the lease: drained, torn down, configured again",
        ChangeStrategy::Restart => "with the lease: configured again, no drain",
        ChangeStrategy::Drain => "with the lease: drained, and stays drained",
    }
}

fn shown(class: ChangeClass) -> plan::ChangeClass {
    match class {
        ChangeClass::Live => plan::ChangeClass::Live,
        ChangeClass::Restart => plan::ChangeClass::Restart,
        ChangeClass::Drain => plan::ChangeClass::Drain,
        ChangeClass::Replace => plan::ChangeClass::Replace,
    }
}

fn of_machine(class: ChangeClass) -> machine::ChangeClass {
    match class {
        ChangeClass::Live => machine::ChangeClass::Live,
        ChangeClass::Restart => machine::ChangeClass::Restart,
        ChangeClass::Drain => machine::ChangeClass::Drain,
        ChangeClass::Replace => machine::ChangeClass::Replace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_proto::machine::MachineFact;
    use dormer_workflows::machine::Phase;

    #[test]
    fn a_machine_that_is_being_replaced_changes_no_more() {
        let deleting = |deleting| State {
            machine: Some(MachineFact {
                deleting,
                ..MachineFact::default()
            }),
            phase: Phase::Serving,
            ..State::default()
        };
        assert!(leaves(&deleting(true)));
        assert!(!leaves(&deleting(false)));
        for phase in [Phase::Vanishing, Phase::Leaving, Phase::ReplacementWait] {
            let state = State {
                phase,
                ..deleting(false)
            };
            assert!(leaves(&state), "{:?}", state.phase);
        }
    }

    #[test]
    fn a_plan_says_that_a_drain_is_skipped_and_by_whose_annotation() {
        const KEY: &str = "machine.cluster.x-k8s.io/exclude-node-draining";
        let found = [Difference {
            id: "service:kubelet".into(),
            change: ChangeClass::Drain,
            detail: "another binary".into(),
        }];
        let planned = |keys: &[&str]| {
            let machine = MachineFact {
                exclude_drain: !keys.is_empty(),
                drain_excluded_by: keys.iter().map(|key| (*key).to_owned()).collect(),
                ..MachineFact::default()
            };
            let state = State {
                machine: Some(machine),
                ..State::default()
            };
            let mut plan = MachinePlan::default();
            let method = add_changes(&mut plan, &state, &found);
            assert_eq!(method, ChangeMethod::Leased(ChangeStrategy::Recreate));
            plan
        };
        let plan = planned(&[KEY]);
        let said = format!("the annotation {KEY} is set on the Machine");
        assert_eq!(plan.drain_skipped.as_deref(), Some(said.as_str()));
        let how = format!("with the lease: its Machine replaced, not drained: {said}");
        assert_eq!(plan.how, Some(how));
        let plan = planned(&[]);
        assert_eq!(plan.drain_skipped, None);
        let how = plan.how.as_deref();
        assert_eq!(how, Some("with the lease: drained, its Machine replaced"));
    }
}
