//! Rollbacks whose end, or whose record, is disturbed.

use crate::rollout_common;

use dormer_proto::{message::Failure, pool::PoolSettings, rollout::Signal};
use rollout_common::{Pool, terms, wanting};

/// Settings of a pool that names no version, without a rollback.
fn forward() -> PoolSettings {
    PoolSettings {
        spec_payload: Some("installed".into()),
        ..wanting(terms())
    }
}

/// The same, rolled back to 11.0.0.
fn back() -> PoolSettings {
    let mut back = PoolSettings {
        overridden_by: Some("ann: the weekend".into()),
        ..forward()
    };
    let desired = back.desired.values_mut();
    desired.for_each(|desired| desired.payload = "11.0.0".into());
    back
}

fn rolled_back() -> Pool {
    let mut pool = Pool::of(&["a", "b"]);
    pool.settings(forward());
    pool.person(Signal::Rollback {
        to: "11.0.0".into(),
    })
    .written("11.0.0", None)
    .settings(back());
    pool
}

/// The API server applied the patch, and no worker could say so before the task's time was over.
#[test]
fn an_end_that_has_landed_and_was_never_reported_holds_nobody_back() {
    let mut pool = rolled_back();
    pool.person(Signal::EndRollback);
    pool.settings(forward());
    let nobody = Failure::transient("NoAnswer", "no worker has reported on it in time");
    pool.ended("installed", Some(nobody));
    // The next full list.
    pool.settings(forward()).request("a");
    assert_eq!(pool.state.rollback_not_in_settings(), None, "{}", pool.text);
}

/// Two people roll back to the same payload. The second request passed the API's check, and is taken after the first
/// one shows in the settings.
#[test]
fn a_refused_request_leaves_the_rollback_in_force_on_record() {
    let mut pool = rolled_back();
    pool.person(Signal::Rollback {
        to: "11.0.0".into(),
    });
    // The pool is created again from Git, without its status.
    pool.settings(forward()).request("a");
    assert!(
        pool.state.slots.is_empty(),
        "a machine goes forward to the payload that was rolled back:\n{}",
        pool.text
    );
}

/// The same while the rollback is being ended: a lease for the payload that is being left is of no use.
#[test]
fn a_refused_request_leaves_the_end_of_a_rollback_under_way() {
    let mut pool = rolled_back();
    pool.person(Signal::EndRollback);
    pool.person(Signal::Rollback {
        to: "11.0.0".into(),
    });
    pool.request("a");
    assert!(pool.state.slots.is_empty(), "{}", pool.text);
}
