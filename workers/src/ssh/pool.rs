//! One connection a host, shared by this worker's tasks and kept while it is of use.

use super::{Dialer, Key, Limits, Session, SshError, error::pins};
use crate::observer::{self, CountedConnection, Operation};
use dormer_proto::{lock::Locked as _, machine::HostRef};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Duration,
};

/// Key of a pooled connection. A recreated Machine or another address has another key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PoolKey {
    uid: String,
    address: String,
    user: String,
}

type ConnectionSlot = Arc<tokio::sync::Mutex<Option<OpenConnection>>>;

/// A connection, counted while it is kept.
struct OpenConnection {
    open: Arc<Session>,
    _counted: CountedConnection,
}

/// This worker's connections.
pub struct Pool {
    dialer: Dialer,
    key: Key,
    limits: Limits,
    /// Lock held for a map operation, never across an await. Each slot has its own lock, held while one task connects,
    /// so that two tasks of one host do not connect twice.
    slots: Mutex<HashMap<PoolKey, ConnectionSlot>>,
}

impl Pool {
    /// No connections yet.
    #[must_use]
    pub fn new(dialer: Dialer, key: Key, limits: Limits) -> Self {
        Self {
            dialer,
            key,
            limits,
            slots: Mutex::default(),
        }
    }

    /// The key that opens the hosts.
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<PoolKey, ConnectionSlot>> {
        self.slots.locked()
    }

    /// Connection to a host, opened if no live one exists. The pin is compared each time.
    ///
    /// # Errors
    ///
    /// The connection or the login failed.
    pub async fn session(&self, host: &HostRef) -> Result<Arc<Session>, SshError> {
        self.sweep();
        let pool_key = pool_key(host);
        let slot = Arc::clone(self.slots().entry(pool_key).or_default());
        let mut session = slot.lock().await;
        let usable = |open: &&Arc<Session>| !open.is_closed() && open.idle_for() < self.limits.idle;
        if let Some(open) = session.as_ref().map(|kept| &kept.open).filter(usable) {
            check_pin(host, open)?;
            return Ok(Arc::clone(open));
        }
        let pin = host.pin.as_deref();
        let dialer = &self.dialer;
        let key = &self.key;
        let operation = observer::begin(Operation::Connect);
        let opened = Session::open(dialer, &host.address, &host.user, pin, key, self.limits).await;
        let opened = Arc::new(operation.ended(opened)?);
        *session = Some(OpenConnection {
            open: Arc::clone(&opened),
            _counted: CountedConnection::begin(),
        });
        tokio::spawn(close_when_idle(Arc::downgrade(&slot), self.limits.idle));
        Ok(opened)
    }

    /// Connection that leaves the pool unless its user reports success: after an interrupted call the next user could
    /// read its remaining output.
    #[must_use]
    pub fn hold<'a>(&'a self, host: &'a HostRef) -> ConnectionGuard<'a> {
        ConnectionGuard {
            pool: self,
            host,
            done: false,
        }
    }

    /// Removes a connection that failed its user from the pool.
    pub fn drop_session(&self, host: &HostRef) {
        self.slots().remove(&pool_key(host));
    }

    /// Forgets slots without a connection, unless a task connects just now.
    fn sweep(&self) {
        self.slots().retain(|_, slot| {
            let kept = || slot.try_lock().is_ok_and(|session| session.is_some());
            Arc::strong_count(slot) > 1 || kept()
        });
    }

    /// How many connections are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots().len()
    }

    /// Whether none is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots().is_empty()
    }
}

/// A connection in use; see [`Pool::hold`].
pub struct ConnectionGuard<'a> {
    pool: &'a Pool,
    host: &'a HostRef,
    done: bool,
}

impl ConnectionGuard<'_> {
    /// The use has ended by itself, well or not.
    pub fn done(mut self) {
        self.done = true;
    }
}

impl Drop for ConnectionGuard<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.pool.drop_session(self.host);
        }
    }
}

/// Removes the connection from its slot when it has been idle for too long, or has ended.
async fn close_when_idle(slot: Weak<tokio::sync::Mutex<Option<OpenConnection>>>, idle: Duration) {
    let mut wait = idle;
    loop {
        tokio::time::sleep(wait).await;
        let Some(slot) = slot.upgrade() else { return };
        let mut session = slot.lock().await;
        let open = session.as_ref().map(|kept| &kept.open);
        match open
            .filter(|open| !open.is_closed())
            .map(|open| open.idle_for())
        {
            Some(still) if still < idle => wait = idle - still,
            _ => {
                *session = None;
                return;
            }
        }
    }
}

fn pool_key(host: &HostRef) -> PoolKey {
    PoolKey {
        uid: host.machine.uid.clone(),
        address: host.address.clone(),
        user: host.user.clone(),
    }
}

fn check_pin(host: &HostRef, open: &Session) -> Result<(), SshError> {
    match &host.pin {
        Some(pinned) if !pins(pinned, open.host_key()) => Err(SshError::HostKey {
            address: host.address.clone(),
            pinned: pinned.clone(),
            shown: open.host_key().to_owned(),
        }),
        _ => Ok(()),
    }
}
