//! Bounded cache of answers. Each entry has its own lifetime.

use dormer_proto::lock::Locked as _;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
    time::Duration,
};
use tokio::time::Instant;

/// Cache of answers, keyed by the question.
pub(super) struct Cache<V> {
    /// Lock held for one map operation, never across an await.
    kept: Mutex<HashMap<String, (Instant, V)>>,
    /// Most entries at once. A full cache drops expired entries first; if none has expired, it drops all.
    most: usize,
}

impl<V: Clone> Cache<V> {
    pub(super) fn new(most: usize) -> Self {
        Self {
            kept: Mutex::default(),
            most,
        }
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<String, (Instant, V)>> {
        self.kept.locked()
    }

    /// Answer to the question. `None` if it is missing or expired.
    pub(super) fn get(&self, asked: &str) -> Option<V> {
        let kept = self.kept();
        let (until, answer) = kept.get(asked)?;
        (Instant::now() < *until).then(|| answer.clone())
    }

    /// Removes and returns the answer. `None` if it is missing or expired.
    pub(super) fn take(&self, asked: &str) -> Option<V> {
        let (until, answer) = self.kept().remove(asked)?;
        (Instant::now() < until).then_some(answer)
    }

    /// Stores an answer for the duration `long`.
    pub(super) fn put(&self, asked: String, answer: V, long: Duration) {
        let now = Instant::now();
        let mut kept = self.kept();
        if kept.len() >= self.most {
            kept.retain(|_, (until, _)| now < *until);
        }
        if kept.len() >= self.most {
            kept.clear();
        }
        kept.insert(asked, (now + long, answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_lapse_and_never_are_too_many() {
        let cache = Cache::new(2);
        let short = Duration::from_secs(1);
        let long = Duration::from_secs(60);
        cache.put("a".into(), 1, short);
        cache.put("b".into(), 2, long);
        assert_eq!((cache.get("a"), cache.get("b")), (Some(1), Some(2)));
        tokio::time::advance(short).await;
        assert_eq!(cache.get("a"), None);
        cache.put("c".into(), 3, long);
        assert_eq!(
            (cache.get("b"), cache.get("c")),
            (Some(2), Some(3)),
            "the lapsed one went"
        );
        cache.put("d".into(), 4, long);
        assert_eq!((cache.get("b"), cache.get("d")), (None, Some(4)));
        assert_eq!(
            (cache.take("d"), cache.take("d")),
            (Some(4), None),
            "it is taken once"
        );
    }
}
