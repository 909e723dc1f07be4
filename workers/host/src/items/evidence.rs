//! Evidence items, which are read after all others and never change anything.

use dormer_profile::{
    answer::FailureCode,
    item::{Http, SteadyService},
};

use super::Step;
use crate::{
    ops::{Host, HttpGet, ServiceState},
    problem::{Problem, Result},
    progress::Run,
    services,
};

/// Time limit of one page.
const PAGE_MS: u64 = 2_000;

/// Result of missing evidence: a plan reports a difference, an apply fails.
fn none<H>(run: &Run<H>, code: FailureCode, said: String) -> Result<Step> {
    if run.apply {
        Err(Problem::new(code, said))
    } else {
        Ok(Step::Differs(said))
    }
}

/// The process of a service that runs.
async fn process<H: Host>(run: &mut Run<H>, name: &str) -> Result<Option<u32>> {
    let status = services::status(&mut run.host, name).await?;
    let running = status.filter(|status| status.state == ServiceState::Running && status.pid != 0);
    Ok(running.map(|status| status.pid))
}

/// A service that runs, and keeps its process.
pub(crate) async fn steady<H: Host>(run: &mut Run<H>, item: &SteadyService) -> Result<Step> {
    run.log.clone_from(&item.log);
    let Some(before) = process(run, &item.service).await? else {
        return none(
            run,
            FailureCode::ServiceCrashed,
            format!("{} is not running", item.service),
        );
    };
    if run.apply && item.steady_ms > 0 {
        let wait = run
            .host
            .wait(format!("{}_is_steady", item.service), item.steady_ms)
            .await?;
        while run.host.again(&wait, item.steady_ms).await? {}
    }
    if process(run, &item.service).await? == Some(before) {
        return Ok(Step::Ok(String::new()));
    }
    none(
        run,
        FailureCode::ServiceCrashed,
        format!("{} changed its process", item.service),
    )
}

/// An address of this host that answers 200.
pub(crate) async fn http<H: Host>(run: &mut Run<H>, item: &Http) -> Result<Step> {
    run.log.clone_from(&item.log);
    let limit_ms = if run.apply { item.wait_ms } else { 0 };
    let wait = run.host.wait("answers_200", limit_ms).await?;
    loop {
        let get = HttpGet {
            url: item.url.clone(),
            timeout_ms: PAGE_MS,
        };
        if run.host.ask(get).await == Ok(200) {
            return Ok(Step::Ok(String::new()));
        }
        if !run.host.again(&wait, 1_000).await? {
            return none(
                run,
                FailureCode::NotHealthy,
                format!("{} does not answer 200", item.url),
            );
        }
    }
}
