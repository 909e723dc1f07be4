//! End of a rollback: it ends the one that its requester saw, and no other.

use super::Body;
use crate::{ApiError, run_cache::SharedRun, views};
use dormer_proto::id::Timestamp;
use dormer_workflows::{State, rollout::Rollback};

/// Time within which a rollback gets into the pool's settings, in milliseconds.
const ACCEPTED_WITHIN_MS: u64 = 60_000;

impl Body {
    /// Checks that the rollback that is to be ended is still the one that the requester saw. A repeat is confirmed.
    ///
    /// # Errors
    /// 409: another one is in force.
    pub(crate) fn ends_what_was_shown(
        &self,
        run: &SharedRun,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        let repeated = self.id.as_ref().is_some_and(|id| run.requests.contains(id));
        let (State::Rollout(state), Some(seen), false) = (&run.state, &self.overridden, repeated)
        else {
            return Ok(());
        };
        let Some(in_force) = state.rollback_in_force(now) else {
            return Ok(());
        };
        let shown = views::pool(run).and_then(|pool| pool.overridden);
        let same = |to: &String| *to == in_force.to;
        // One that does not get into the pool's settings is shown nowhere, and can still be ended.
        let hangs = now.since_ms(in_force.at) > ACCEPTED_WITHIN_MS;
        if shown.as_ref() == Some(seen) && (hangs || self.payload.as_ref().is_none_or(same)) {
            return Ok(());
        }
        let pool = run.id.key();
        let Rollback { to, by, .. } = in_force;
        Err(ApiError::conflict(
            format!("another rollback of the pool {pool} is in force by now: to {to}, by {by}"),
            format!("a minute after it began, dormer rollback --pool {pool} --end ends this one"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormer_engine_core::{Entered, Run};
    use dormer_proto::{
        id::{Seq, Sum},
        work::rollout_run,
    };
    use dormer_views::rollout::Overridden;
    use dormer_workflows::rollout::{self, RollbackStep, Source, TargetPayload};
    use std::{collections::BTreeMap, sync::Arc};

    /// Rollout of a pool that ann rolled back from 11.0.0 to 10.9.0.
    fn rolled_back(own: Option<Rollback>) -> SharedRun {
        let state = rollout::State {
            payload: Some(TargetPayload {
                payload: "10.9.0".into(),
                ..TargetPayload::default()
            }),
            source: Some(Source {
                spec_payload: Some("11.0.0".into()),
                overridden_by: Some("ann".into()),
                ..Source::default()
            }),
            rollback: own,
            ..rollout::State::default()
        };
        Arc::new(Run {
            id: rollout_run("windows").expect("a run"),
            seq: Seq(7),
            began: Timestamp(1),
            state: State::Rollout(Box::new(state)),
            entered: Entered::default(),
            tasks: Vec::new(),
            timers: BTreeMap::new(),
            outbox: Vec::new(),
            taken: BTreeMap::new(),
            numbered: Seq(0),
            requests: ["sent".to_owned()].into(),
            facts: BTreeMap::new(),
            episodes: [].into(),
            closed: None,
            sum: Sum(0),
        })
    }

    fn shown(payload: &str, spec_payload: &str, by: &str) -> Body {
        Body {
            payload: Some(payload.to_owned()),
            overridden: Some(Overridden {
                spec_payload: spec_payload.to_owned(),
                by: by.to_owned(),
            }),
            ..Body::default()
        }
    }

    #[test]
    fn only_the_rollback_that_was_shown_is_ended() {
        let ends = |body: &Body, run| body.ends_what_was_shown(run, Timestamp(9)).is_ok();
        let run = rolled_back(None);
        assert!(ends(&shown("10.9.0", "11.0.0", "ann"), &run));
        assert!(ends(&Body::default(), &run), "who saw none names none");
        for other in [
            shown("10.8.0", "11.0.0", "ann"),
            shown("10.9.0", "installed", "ann"),
            shown("10.9.0", "11.0.0", "bob"),
        ] {
            assert!(!ends(&other, &run), "{other:?}");
        }
        let sent_before = Body {
            id: Some("sent".into()),
            ..shown("10.8.0", "11.0.0", "ann")
        };
        assert!(ends(&sent_before, &run), "a repeat is confirmed");
        // The next one is not in the pool's status yet.
        let next = Rollback {
            from: "10.9.0".into(),
            to: "10.8.0".into(),
            by: "bob".into(),
            at: Timestamp(8),
            step: RollbackStep::Writing,
            instead: Some("11.0.0".into()),
        };
        let run = rolled_back(Some(next));
        let refused = shown("10.9.0", "11.0.0", "ann").ends_what_was_shown(&run, Timestamp(9));
        let refused = format!("{:?}", refused.expect_err("another one is in force"));
        assert!(refused.contains("to 10.8.0, by bob"), "{refused}");
        let later = Timestamp(8 + ACCEPTED_WITHIN_MS + 1);
        let ended = shown("10.9.0", "11.0.0", "ann").ends_what_was_shown(&run, later);
        assert!(ended.is_ok(), "it hangs: {ended:?}");
    }
}
