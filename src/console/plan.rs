//! Page of a plan: what would change on the machines of a pool, item by item, and the approval of it.

use super::{
    PageContent, Snapshot,
    page::{Section, Weight, button_for_all, capital, or_dash, query, why},
};
use dormer_api::{Api, ApiError, live::Live};
use dormer_proto::phase::MachinePhase;
use dormer_views::{
    actions::APPROVE,
    explain,
    machine::Machine,
    moment::span,
    open_enum::OpenEnum,
    plan::{ChangeClass, MachinePlan, Plan},
};
use maud::{Markup, html};
use serde::Deserialize;
use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// Most machines by name in a group with one plan.
const NAMES_MAX: usize = 12;
/// Snapshot's ticks between two plans of machines that did not change.
const TICKS: u64 = 15;

/// Pool of the page, from the query. `None`: the first one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(default)]
pub(super) struct PlanQuery {
    pool: Option<String>,
}

/// Mark that changes when a machine changes its phase or its version, and from time to time.
pub(super) fn mark(snapshot: &Snapshot, live: &Live) -> u64 {
    let mut hasher = DefaultHasher::new();
    for machine in snapshot.machines(live) {
        (machine.uid, machine.phase_text).hash(&mut hasher);
        (machine.version, machine.desired_version).hash(&mut hasher);
    }
    (snapshot.tick / TICKS, &snapshot.trouble).hash(&mut hasher);
    hasher.finish()
}

/// Reads the plan and renders it.
pub(super) async fn read(api: &Arc<Api>, snapshot: &Snapshot, chosen: &PlanQuery) -> PageContent {
    let machines = snapshot.machines(api.live());
    let pools: BTreeSet<&str> = machines.iter().map(|it| it.pool.as_str()).collect();
    let pool = chosen.pool.as_deref().or(pools.first().copied());
    let plan = match pool {
        Some(pool) => Some(api.plan_of(pool).await),
        None => None,
    };
    let main = html! {
        div.top {
            h1 { "Plan" @if let Some(pool) = pool { " of " (pool) } }
            @if pools.len() > 1 {
                nav aria-label="Pools" { ul.chips {
                    @for it in &pools {
                        li { a.chip href=(format!("/plan{}", query(&[("pool", Some(it))])))
                            aria-current=[(Some(*it) == pool).then_some("page")] { (it) } }
                    }
                } }
            }
        }
        @match &plan {
            None => p.quiet { "There are no machines yet, so nothing would change." },
            Some(Err(error)) => (unplanned(error)),
            Some(Ok(plan)) => (planned(plan, &machines)),
        }
    };
    PageContent {
        title: "Plan".into(),
        section: Section::Plan,
        main,
    }
}

fn unplanned(error: &ApiError) -> Markup {
    let (what, advice) = error.what_and_remedy();
    html! { div.note.amber { p { b { "There is no plan: " (what) } } p { (advice) } } }
}

/// Machines whose plans are equal.
struct EqualPlans<'a> {
    plan: &'a MachinePlan,
    names: Vec<&'a str>,
}

/// Plans with equal changes once, those with changes first.
fn alike(plan: &Plan) -> Vec<EqualPlans<'_>> {
    let mut all: Vec<EqualPlans<'_>> = Vec::new();
    for one in &plan.items {
        let same = |it: &MachinePlan| {
            (&it.from, &it.to, &it.class, &it.changes, it.changes_in_all)
                == (
                    &one.from,
                    &one.to,
                    &one.class,
                    &one.changes,
                    one.changes_in_all,
                )
                && it.not_allowed == one.not_allowed
                && (&it.unknown, it.leaves) == (&one.unknown, one.leaves)
        };
        match all.iter_mut().find(|it| same(it.plan)) {
            Some(group) => group.names.push(&one.name),
            None => all.push(EqualPlans {
                plan: one,
                names: vec![&one.name],
            }),
        }
    }
    all.sort_by_key(|it| {
        let plan = it.plan;
        (plan.class.is_none(), plan.unknown.is_none(), plan.leaves)
    });
    all
}

fn planned(plan: &Plan, machines: &[Machine]) -> Markup {
    let ours = |it: &&Machine| it.pool == plan.pool && it.phase == MachinePhase::ApprovalWait;
    let waiting: Vec<&Machine> = machines.iter().filter(ours).collect();
    let groups = alike(plan);
    let changing = plan.items.iter().filter(|it| it.class.is_some()).count();
    html! {
        p {
            b { (changing) " of " (plan.items.len()) } " machines would change. "
            @if waiting.is_empty() { "None waits for approval." }
            @else if waiting.len() == 1 { "One waits for approval." }
            @else { (waiting.len()) " wait for approval." }
        }
        @if !waiting.is_empty() {
            div.actions role="group" aria-label="Approval" data-key="actions" {
                @if let Some(button) = button_for_all(&APPROVE, &asked(&waiting, None), Weight::Primary) { (button) }
                (why())
            }
        }
        @for group in &groups { (shown(group, &waiting)) }
        (templates(plan))
    }
}

/// Machines that were made from an earlier template of their MachineSet.
fn templates(plan: &Plan) -> Markup {
    let machines = plan.items.iter();
    let groups = explain::outdated(machines.map(|it| (&*it.name, &*it.template_differs)));
    html! {
        @for group in &groups {
            section.card.plan data-key=(format!("template-{}", group.names.first().unwrap_or(&""))) {
                h2 { (group.names.len()) @if group.names.len() == 1 { " machine" } @else { " machines" }
                    " of an earlier template" }
                p { (group.heading()) " An upgrade in place does not change that." }
                ul { @for difference in group.differs { li { code { (difference) } } } }
                p { (group.remedy()) }
            }
        }
    }
}

/// Machines that wait for approval, all or those with these names.
fn asked<'a>(waiting: &[&'a Machine], names: Option<&[&str]>) -> Vec<(&'a str, u64)> {
    let ours = waiting
        .iter()
        .filter(|it| names.is_none_or(|names| names.contains(&it.name.as_str())));
    ours.map(|it| (it.uid.as_str(), it.status.entered_seq))
        .collect()
}

/// Class of a change, as a heading says it. One that only a newer dormer knows is shown as it is.
fn in_words(class: &OpenEnum<ChangeClass>) -> String {
    match class.known() {
        Some(ChangeClass::Live) => "changed while they serve",
        Some(ChangeClass::Restart) => "services restart, without a drain",
        Some(ChangeClass::Drain) => "drained and changed",
        Some(ChangeClass::Replace) => "drained and replaced",
        None => class.id(),
    }
    .to_owned()
}

fn shown(group: &EqualPlans<'_>, waiting: &[&Machine]) -> Markup {
    let plan = group.plan;
    let count = group.names.len();
    let more = count.saturating_sub(NAMES_MAX);
    let asked = asked(waiting, Some(&group.names));
    let left_out = plan
        .changes_in_all
        .saturating_sub(plan.changes.len() as u64);
    let what = match (&plan.class, &plan.unknown) {
        (Some(class), _) => in_words(class),
        (None, Some(_)) if plan.node.is_none() => "not a node yet".to_owned(),
        (None, Some(_)) => "the changes are not known yet".to_owned(),
        (None, None) if plan.leaves => "being deleted, so nothing changes any more".to_owned(),
        (None, None) => "nothing differs".to_owned(),
    };
    html! {
        section.card.plan data-key=(format!("plan-{}", group.names.first().unwrap_or(&""))) {
            h2 { (count) @if count == 1 { " machine: " } @else { " machines: " } (what) }
            p.names {
                @for name in group.names.iter().take(NAMES_MAX) { a href=(format!("/machines/{name}")) { (name) } }
                @if more > 0 { span.quiet { " and " (more) " more" } }
            }
            @if !plan.leaves && plan.from != plan.to {
                p { code { (or_dash(plan.from.as_deref())) } " → " code { (or_dash(plan.to.as_deref())) } }
            }
            @if let Some(why) = &plan.unknown {
                // Nothing is taken out of service for a machine that does not serve yet.
                @if plan.node.is_none() { p.quiet { (capital(why)) "." } }
                @else { p.amber { "The changes are unknown: " (why) } }
            }
            @if let Some(why) = &plan.not_allowed { p.amber { "Not allowed now: " (why) } }
            @if let Some(how) = &plan.how { p { "How: " (how) } }
            @if let Some(ms) = plan.expected_ms {
                p.quiet {
                    "Each takes about " (span(ms / 1_000))
                    @match plan.unknown_steps {
                        0 => {},
                        1 => ", without one step that no machine has taken yet",
                        steps => { ", without " (steps) " steps that no machine has taken yet" },
                    }
                    "."
                }
            }
            @if !asked.is_empty() && group.names.len() < waiting.len() {
                @if let Some(button) = button_for_all(&APPROVE, &asked, Weight::Secondary) { p { (button) } }
            }
            @if !plan.changes.is_empty() {
                details open data-key="changes" {
                    summary { (plan.changes_in_all) @if plan.changes_in_all == 1 { " item differs" } @else { " items differ" } }
                    table {
                        thead { tr { th { "Item" } th { "Change" } th { "What differs" } } }
                        tbody { @for change in &plan.changes {
                            tr data-key=(change.item) {
                                td data-label="Item" { code { (change.item) } }
                                td data-label="Change" { (change.class) }
                                td data-label="What differs" { (change.detail) }
                            }
                        } }
                    }
                    @if left_out > 0 { p.quiet { "and " (left_out) " more" } }
                    p.quiet {
                        "live: while the node serves. restart: its services restart. drain: on a drained node. replace: on a "
                        "new Machine. The strongest of them decides how the machine is changed."
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actions::tests::machine_in;
    use dormer_views::{machine::TemplateDifference, plan::ItemChange};

    fn plan_of(name: &str, item: Option<&str>) -> MachinePlan {
        let change = item.map(|item| ItemChange {
            item: item.into(),
            class: ChangeClass::Drain.into(),
            detail: "its arguments differ".into(),
        });
        MachinePlan {
            name: name.into(),
            class: change.as_ref().map(|it| it.class.clone()),
            changes_in_all: change.iter().count() as u64,
            changes: change.into_iter().collect(),
            ..MachinePlan::default()
        }
    }

    #[test]
    fn machines_of_an_earlier_template_have_a_card() {
        let differs = vec![TemplateDifference {
            field: "spec.providerSpec.value.ami.id".into(),
            machine: Some("\"ami-1\"".into()),
            template: Some("\"ami-2\"".into()),
        }];
        let outdated = |name: &str| MachinePlan {
            template_differs: differs.clone(),
            ..plan_of(name, None)
        };
        let items = vec![outdated("win-a"), plan_of("win-b", None), outdated("win-c")];
        let plan = Plan {
            pool: "windows".into(),
            items,
        };
        let page = planned(&plan, &[]).into_string();
        assert_eq!(
            page.matches("of an earlier template</h2>").count(),
            1,
            "{page}"
        );
        for said in [
            "win-a, win-c were made",
            "&quot;ami-2&quot;",
            "dormer recreate win-a",
        ] {
            assert!(page.contains(said), "{said}: {page}");
        }
    }

    #[test]
    fn equal_plans_are_shown_once_item_by_item_and_approved_there() {
        let items = vec![
            plan_of("win-0", None),
            plan_of("win-a", Some("service:kubelet")),
            plan_of("win-b", Some("service:kubelet")),
            MachinePlan {
                from: Some("1.0.0".into()),
                leaves: true,
                ..plan_of("win-c", None)
            },
        ];
        let plan = Plan {
            pool: "windows".into(),
            items,
        };
        let waits = Machine {
            name: "win-b".into(),
            ..machine_in(MachinePhase::ApprovalWait)
        };
        let shown = planned(&plan, &[waits]).into_string();
        for expected in [
            "<b>2 of 4</b> machines would change. One waits for approval.",
            "data-action=\"approve\"",
            "2 machines: drained and changed",
            "<code>service:kubelet</code>",
            "1 machine: nothing differs",
            "1 machine: being deleted, so nothing changes any more",
        ] {
            assert!(shown.contains(expected), "{expected}: {shown}");
        }
        assert_eq!(
            shown.matches("service:kubelet</code>").count(),
            1,
            "{shown}"
        );
        let first = shown.find("2 machines: drained");
        assert!(first < shown.find("nothing differs"), "{shown}");
    }
}
