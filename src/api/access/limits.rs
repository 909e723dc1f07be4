//! Limit on the concurrent requests of each user, so that one user cannot use up the server.

use axum::{body::Body, response::Response};
use dormer_proto::lock::Locked as _;
use futures::StreamExt;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

/// Most requests of one user in progress, endless streams included: an open page holds one of those.
pub(super) const USER_MAX: usize = 128;

/// Counts of requests in progress.
#[derive(Debug, Default)]
pub(super) struct PerUser {
    /// Lock held for one map operation, never across an await.
    open: Mutex<HashMap<String, usize>>,
}

/// A request in progress. It counts until it is dropped.
#[derive(Debug)]
pub(super) struct Open {
    all: Arc<PerUser>,
    user: String,
}

impl PerUser {
    fn all(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.open.locked()
    }

    /// Counts a request. `None`: the user has reached the limit.
    pub(super) fn open(self: &Arc<Self>, user: &str) -> Option<Open> {
        let mut all = self.all();
        let count = all.entry(user.to_owned()).or_default();
        if *count >= USER_MAX {
            return None;
        }
        *count += 1;
        drop(all);
        Some(Open {
            all: Arc::clone(self),
            user: user.to_owned(),
        })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut all = self.all.all();
        let Some(count) = all.get_mut(&self.user) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            all.remove(&self.user);
        }
    }
}

/// The response, whose stream counts as in progress until its reader has gone. Another answer is written from memory.
pub(super) fn held(response: Response, open: Open) -> Response {
    response.map(|body| {
        let frames = body.into_data_stream();
        Body::from_stream(frames.map(move |frame| {
            let _held = &open;
            frame
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_has_a_share_until_the_answers_have_gone() {
        let all = Arc::<PerUser>::default();
        let mut held_by_ann: Vec<Open> = Vec::new();
        held_by_ann.extend((0..=USER_MAX).map_while(|_| all.open("ann")));
        assert_eq!(held_by_ann.len(), USER_MAX);
        assert!(all.open("ann").is_none());
        assert!(all.open("ben").is_some(), "others have their own share");
        let streamed = held(
            Response::new(Body::from("x")),
            held_by_ann.pop().expect("one"),
        );
        assert!(all.open("ann").is_none(), "a stream counts");
        drop(streamed);
        assert!(all.open("ann").is_some());
        held_by_ann.clear();
        assert!(all.all().is_empty(), "nothing is kept of who has gone");
    }
}
