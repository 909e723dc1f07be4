//! `dormer rollback`: back to an earlier payload, forward again, or which payloads there are.

use super::{
    pool_in,
    request::{RequestArgs, RequestBody, Risk},
};
use crate::{
    Failure, absent,
    items::Kind,
    server::{Server, segment},
};
use clap::Args;
use dormer_views::{
    actions::{END_ROLLBACK, ROLLBACK},
    rollout::{Overridden, Pool},
};

/// Arguments of a rollback.
#[derive(Debug, Args)]
pub struct Rollback {
    /// The pool, also as the first argument: POOL or pool/POOL
    #[arg(long = "pool", value_name = "POOL", required_unless_present = "named")]
    pool: Option<String>,
    /// The pool, as --pool
    #[arg(value_name = "POOL", conflicts_with = "pool", hide = true)]
    named: Option<String>,
    /// Version of the payload to go back to; the present payload must be allowed to follow it. Without it, the command
    /// says which versions there are
    #[arg(long, value_name = "VERSION")]
    to: Option<String>,
    /// End the rollback and go forward again, to the payload in the pool's spec
    #[arg(long, conflicts_with = "to")]
    end: bool,
    #[command(flatten)]
    request: RequestArgs,
}

impl Rollback {
    pub(crate) async fn run(self) -> Result<String, Failure> {
        let server = self.request.to.server()?;
        let named = self.pool.as_deref().or(self.named.as_deref());
        let pool = named.map_or("", |it| pool_in(it).unwrap_or(it));
        let found = server.get::<Pool>(&Kind::Pools.one(pool)).await;
        // Who may not read pools may be allowed to roll one back.
        let found = match found {
            Err(Failure::Refused { .. }) if self.to.is_some() || self.end => None,
            found => Some(self.explained(&server, pool, found).await?),
        };
        if self.end {
            return self.end_in(&server, pool, found.as_ref()).await;
        }
        let Some(to) = self.to.as_deref() else {
            return Err(found.as_ref().map_or_else(
                || Failure::Usage("give --to VERSION".into()),
                without_version,
            ));
        };
        let what = format!("go back to {to} in the pool {pool}");
        let body = RequestBody {
            payload: Some(to),
            ..self.request.body()
        };
        let path = format!("/rollouts/{}/actions/rollback", segment(pool));
        let risk = Risk::of(&ROLLBACK);
        if self.request.asks(risk) {
            self.request.check(&server, &path, &body).await?;
        }
        self.request.confirm(&what, risk)?;
        let answered = self.request.post(&server, &ROLLBACK, &path, &body).await;
        self.explained(&server, pool, answered).await
    }

    /// Goes forward again.
    async fn end_in(
        &self,
        server: &Server,
        pool: &str,
        found: Option<&Pool>,
    ) -> Result<String, Failure> {
        let path = format!("/rollouts/{}/actions/{}", segment(pool), END_ROLLBACK.name);
        let to = found.and_then(|it| it.overridden.as_ref());
        let body = RequestBody {
            payload: to.and(found).and_then(|it| it.payload.as_deref()),
            overridden: to,
            ..self.request.body()
        };
        let risk = Risk::of(&END_ROLLBACK);
        if self.request.asks(risk) {
            self.request.check(server, &path, &body).await?;
        }
        let to = to.map_or_else(|| "the payload in its spec".to_owned(), Overridden::forward);
        let what = format!("end the rollback of the pool {pool}, and go forward to {to}");
        self.request.confirm(&what, risk)?;
        let answered = self.request.post(server, &END_ROLLBACK, &path, &body).await;
        self.explained(server, pool, answered).await
    }

    /// `answered`, where an unknown pool is explained as that of the flag or of the argument, whichever named it.
    async fn explained<T>(
        &self,
        server: &Server,
        pool: &str,
        answered: Result<T, Failure>,
    ) -> Result<T, Failure> {
        match &self.pool {
            Some(_) => absent::in_pool(server, pool, answered).await,
            None => absent::explained(server, Kind::Pools, pool, answered).await,
        }
    }
}

/// Answer to a rollback without a version: the versions that the pool may go back to.
fn without_version(pool: &Pool) -> Failure {
    let Pool {
        pool: name,
        payload,
        rollback_to,
        overridden,
        ..
    } = pool;
    let now = payload.as_deref().unwrap_or("no payload");
    if let Some(back) = overridden {
        return Failure::refused(
            format!(
                "{name} is rolled back already, to {now} instead of {}",
                back.forward()
            ),
            format!("to go forward again: dormer rollback --pool {name} --end"),
        );
    }
    match rollback_to.as_slice() {
        [] => Failure::refused(
            format!("{name}, at {now}, has no version to go back to"),
            "a payload names in mayFollow which versions it may follow, and those must be installed, too: dormer \
             payload list",
        ),
        [first, ..] => Failure::Usage(format!(
            "--to is missing: {name}, at {now}, may go back to {}\ndormer rollback --pool {name} --to {first}",
            rollback_to.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_rollback_without_a_version_says_which_there_are() {
        let said = |back: &[&str]| {
            let pool = json!({"pool": "windows", "maxUnavailable": 1, "approval": "automatic", "paused": null,
                "members": 2, "payload": "11.0.0", "rollbackTo": back});
            let failure = without_version(&serde_json::from_value(pool).expect("a pool"));
            (
                failure.exit_code() == std::process::ExitCode::from(2),
                failure.to_string(),
            )
        };
        let (usage, text) = said(&["10.9.0", "10.8.0"]);
        let expected = "--to is missing: windows, at 11.0.0, may go back to 10.9.0, 10.8.0\n\
                        dormer rollback --pool windows --to 10.9.0";
        assert!(usage && text == expected, "{text}");
        let (usage, text) = said(&[]);
        assert!(
            !usage && text.contains("no version to go back to"),
            "{text}"
        );
    }

    #[test]
    fn a_pool_that_is_rolled_back_gets_the_command_that_goes_forward() {
        let pool = json!({"pool": "windows", "maxUnavailable": 1, "approval": "automatic", "paused": null,
            "members": 2, "payload": "11.0.0", "overridden": {"specPayload": "installed", "by": "ann"}});
        let text = without_version(&serde_json::from_value(pool).expect("a pool")).to_string();
        assert!(
            text.contains("to 11.0.0 instead of the newest installed payload")
                && text.contains("dormer rollback --pool windows --end"),
            "{text}"
        );
    }
}
