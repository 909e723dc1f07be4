//! Version of Kubernetes that the other tests ran against.

use super::cluster::{Site, plane};
use dormer_testkit::Kubernetes;

#[tokio::test]
async fn the_control_plane_is_the_one_that_was_asked_for() {
    let site = Site::new(plane!(), "minor").await;
    let info = site
        .world
        .admin
        .apiserver_version()
        .await
        .expect("a version");
    let wanted = Kubernetes::chosen();
    let minor: u32 = info.minor.trim_end_matches('+').parse().expect("a number");
    // A newer one at hand serves as the current; the oldest is exactly itself.
    assert!(minor >= wanted.minor(), "{info:?}");
    if wanted.newer_will_do() {
        return;
    }
    assert_eq!(info.git_version, format!("v{}", wanted.version));
}

#[test]
fn the_newest_that_is_tested_is_the_newest_that_is_promised() {
    let (_, newest) = dormer_support::version::KUBERNETES;
    assert_eq!(Kubernetes::newest().minor(), newest.minor);
}

#[test]
fn the_oldest_that_is_tested_is_the_oldest_that_is_promised() {
    assert_eq!(
        Kubernetes::oldest().minor(),
        dormer_workers::kubernetes::OLDEST_MINOR
    );
}
