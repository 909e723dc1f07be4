//! One connection a host, shared by this worker's tasks and kept while it is of use.

use super::{Dialer, Key, Limits, Session, SshError};
use dormer_proto::machine::HostRef;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Whom a connection is for. A Machine that was made anew, or another address, is another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Whom {
    uid: String,
    address: String,
    user: String,
}

type Place = Arc<tokio::sync::Mutex<Option<Arc<Session>>>>;

/// This worker's connections.
pub struct Pool {
    dialer: Dialer,
    key: Key,
    limits: Limits,
    /// A lock: held for a map operation, never across an await. Each place has its own, held while one connects, so
    /// that two tasks of one host do not connect twice.
    places: Mutex<HashMap<Whom, Place>>,
}

impl Pool {
    /// No connections yet.
    #[must_use]
    pub fn new(dialer: Dialer, key: Key, limits: Limits) -> Self {
        Self { dialer, key, limits, places: Mutex::default() }
    }

    fn places(&self) -> MutexGuard<'_, HashMap<Whom, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection to a host; it is made if there is none that lives. The pin is compared anew each time.
    ///
    /// # Errors
    /// What stands in the way.
    pub async fn session(&self, host: &HostRef) -> Result<Arc<Session>, SshError> {
        self.sweep();
        let whom = whom(host);
        let place = Arc::clone(self.places().entry(whom).or_default());
        let mut session = place.lock().await;
        if let Some(open) = session.as_ref().filter(|open| !open.is_closed()) {
            check_pin(host, open)?;
            return Ok(Arc::clone(open));
        }
        let pin = host.pin.as_deref();
        let (dialer, key) = (&self.dialer, &self.key);
        let opened =
            Session::open(dialer, &host.address, &host.user, pin, key, self.limits).await?;
        let opened = Arc::new(opened);
        *session = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// A connection that failed its user is not given to the next one.
    pub fn drop_session(&self, host: &HostRef) {
        self.places().remove(&whom(host));
    }

    /// Closes what nobody has used for long.
    fn sweep(&self) {
        let idle = self.limits.idle;
        self.places().retain(|_, place| match place.try_lock() {
            Ok(session) => {
                session.as_ref().is_none_or(|open| !open.is_closed() && open.idle_for() < idle)
            }
            // Somebody connects just now.
            Err(_) => true,
        });
    }

    /// How many connections are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places().len()
    }

    /// Whether none is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places().is_empty()
    }
}

fn whom(host: &HostRef) -> Whom {
    Whom { uid: host.machine.uid.clone(), address: host.address.clone(), user: host.user.clone() }
}

fn check_pin(host: &HostRef, open: &Session) -> Result<(), SshError> {
    match &host.pin {
        Some(pinned) if pinned != open.host_key() => Err(SshError::HostKey {
            address: host.address.clone(),
            pinned: pinned.clone(),
            shown: open.host_key().to_owned(),
        }),
        _ => Ok(()),
    }
}
