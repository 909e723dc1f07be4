//! Boot run: a boot deletes HNS endpoints and active routes. The boot run restores them, and then starts our services
//! in order. A service of ours requests it at each boot, since dormer may be down then.

use dormer_profile::{
    answer::{FailureCode, ItemState},
    document::{Document, Section},
    item::{Item, ItemKind},
};
use dormer_proto::boot::same_boot;

use crate::{
    items,
    ops::{
        Host, ServiceChange, ServiceCreate, ServiceDescribe, ServiceSettings, ServiceState, Start,
    },
    paths::{program_path, same, state},
    problem::{Problem, Result},
    progress::Run,
    services,
    state::{BootPlan, BootRun, BootStep, Made, file},
};

/// Service that requests it. It runs, does its work, and stops: no process stays.
pub const SERVICE: &str = "dormer-boot";
const DESCRIPTION: &str =
    "Puts back what a boot takes from this Kubernetes node, then starts its services in order";
/// The service without which no Node is Ready.
const KUBELET: &str = "kubelet";
/// Time limit of its attempts, and of the wait for another call on the host.
pub(crate) const TRIES_MS: u64 = 600_000;
/// Between two tries.
const PAUSE_MS: u64 = 10_000;

/// Records what a boot of this host would delete, and creates the service that restores it.
pub(crate) async fn remember<H: Host>(run: &mut Run<H>, document: &Document) -> Result<()> {
    let path = state(file::BOOT);
    let before: BootPlan = run.host.read_json(&path).await?.unwrap_or_default();
    let mut plan = before.clone();
    let steps = document.items.iter().filter_map(step).collect();
    match document.section {
        Section::Host => plan.host = steps,
        Section::Node => plan.node = steps,
    }
    if plan.host.is_empty() && plan.node.is_empty() {
        return Ok(());
    }
    if plan != before {
        run.host.write_json(&path, &plan).await?;
    }
    // What the boot run could not put back is right now: the host section comes first, so the node section says so.
    let all_is_right = document.section == Section::Node || plan.node.is_empty();
    if all_is_right && failure(run).await?.is_some() {
        note(run, None).await;
    }
    make_service(run).await
}

fn step(item: &Item) -> Option<BootStep> {
    match &item.what {
        ItemKind::Service(what) if what.running => Some(BootStep::Service {
            service: what.name.clone(),
            start_timeout_ms: what.start_timeout_ms,
        }),
        ItemKind::HnsNetwork(_)
        | ItemKind::HnsEndpoint(_)
        | ItemKind::NetworkFile(_)
        | ItemKind::Route(_) => Some(BootStep::Item(Box::new(item.clone()))),
        _ => None,
    }
}

async fn make_service<H: Host>(run: &mut Run<H>) -> Result<()> {
    let name = || SERVICE.to_owned();
    let settings = ServiceSettings {
        command: Some(format!("{} boot", program_path(&run.call.program))),
        display: Some(name()),
        start: Some(Start::Auto),
        depends: Some(Vec::new()),
        error_control: Some(1),
    };
    run.note(Made::Service { name: name() }).await?;
    let failed = |error| {
        let doing = format!("make the service {SERVICE}");
        Problem::windows(FailureCode::ServiceConfigFailed, &doing, &error)
    };
    let read = crate::ops::ServiceRead { name: name() };
    match run.host.ask(read).await {
        Ok(there) => {
            // A call that was cut may have created it without its description.
            let described = there
                .description
                .as_deref()
                .is_none_or(|it| it == DESCRIPTION);
            let started = there.start == Start::Auto;
            if described && started && Some(&there.command) == settings.command.as_ref() {
                return Ok(());
            }
            run.host
                .ask(ServiceChange {
                    name: name(),
                    settings,
                })
                .await
                .map_err(failed)?;
        }
        Err(error) if error.number() == 1060 => {
            run.host
                .ask(ServiceCreate {
                    name: name(),
                    settings,
                })
                .await
                .map_err(failed)?;
        }
        Err(error) => return Err(failed(error)),
    }
    let description = DESCRIPTION.to_owned();
    run.host
        .ask(ServiceDescribe {
            name: name(),
            description,
        })
        .await
        .map_err(failed)
}

/// Restores what the boot deleted. Failures are retried for minutes. Then the kubelet is stopped, so that the Node is
/// NotReady and the problem visible, and the next probe reports why.
pub(crate) async fn put_back<H: Host>(run: &mut Run<H>) -> Result<()> {
    let Some(plan) = run.host.read_json::<BootPlan>(&state(file::BOOT)).await? else {
        return Ok(());
    };
    let host = plan.host.into_iter().map(|step| (Section::Host, step));
    let node = plan.node.into_iter().map(|step| (Section::Node, step));
    let steps: Vec<(Section, BootStep)> = host.chain(node).collect();
    let wait = run.host.wait("boot_run", TRIES_MS).await?;
    let failure = loop {
        let Err(problem) = all(run, &steps).await else {
            break None;
        };
        if problem.going_down || !run.host.again(&wait, PAUSE_MS).await? {
            break Some(problem);
        }
    };
    note(run, failure.as_ref()).await;
    let Some(problem) = failure else {
        return Ok(());
    };
    let ours = steps.iter().any(
        |(_, step)| matches!(step, BootStep::Service { service, .. } if same(service, KUBELET)),
    );
    if ours {
        services::stop(run, KUBELET).await?;
        run.stopped.clear();
    }
    Err(problem)
}

/// Writes down how the boot run ended, for the next probe. A boot run that cannot even do that shows by a Node that is not
/// Ready.
pub(crate) async fn note<H: Host>(run: &mut Run<H>, problem: Option<&Problem>) {
    let path = state(file::BOOT_RUN);
    let ended = BootRun {
        boot_id: run.boot_id.clone(),
        failure: problem
            .map(|problem| problem.message.clone())
            .unwrap_or_default(),
    };
    let before = run.host.read_json::<BootRun>(&path).await;
    if before.ok().flatten().as_ref() != Some(&ended) {
        let _ = run.host.write_json(&path, &ended).await;
    }
}

async fn all<H: Host>(run: &mut Run<H>, steps: &[(Section, BootStep)]) -> Result<()> {
    for (section, step) in steps {
        run.section = *section;
        match step {
            BootStep::Service {
                service,
                start_timeout_ms,
            } => {
                run.host.about(&format!("service:{service}"));
                let there = services::status(&mut run.host, service).await?;
                if there.is_none_or(|there| there.state != ServiceState::Running) {
                    services::start(run, service, *start_timeout_ms).await?;
                }
            }
            BootStep::Item(item) => {
                run.host.about(&item.id);
                let step = items::converge(run, item).await?;
                if matches!(step, items::Step::Changed(_)) {
                    run.outcome(item, ItemState::Changed, "put back");
                }
            }
        }
    }
    run.host.about("");
    Ok(())
}

/// Failure of this boot's boot run.
pub(crate) async fn failure<H: Host>(run: &mut Run<H>) -> Result<Option<String>> {
    let ended: Option<BootRun> = run.host.read_json(&state(file::BOOT_RUN)).await?;
    let ended =
        ended.filter(|ended| same_boot(&ended.boot_id, &run.boot_id) && !ended.failure.is_empty());
    Ok(ended.map(|ended| ended.failure))
}
