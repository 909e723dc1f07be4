//! Locks of memory that several threads share, after a panic of one of them, too: a critical section here is a few
//! operations on a map or a queue, and a panic leaves none of them half done.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A mutex that is locked even if a thread panicked while it held it.
pub trait Locked {
    /// What the mutex guards.
    type Content: ?Sized;

    /// Waits for the lock.
    fn locked(&self) -> MutexGuard<'_, Self::Content>;
}

impl<T: ?Sized> Locked for Mutex<T> {
    type Content = T;

    fn locked(&self) -> MutexGuard<'_, T> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The same for a lock that several readers have at once.
pub trait ReadWriteLocked {
    /// What the lock guards.
    type Content: ?Sized;

    /// Waits until no thread writes.
    fn read_locked(&self) -> RwLockReadGuard<'_, Self::Content>;

    /// Waits for the lock.
    fn write_locked(&self) -> RwLockWriteGuard<'_, Self::Content>;
}

impl<T: ?Sized> ReadWriteLocked for RwLock<T> {
    type Content = T;

    fn read_locked(&self) -> RwLockReadGuard<'_, T> {
        self.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_locked(&self) -> RwLockWriteGuard<'_, T> {
        self.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_lock_is_taken_after_a_panic_of_its_holder() {
        let mutex = Mutex::new(1);
        let both = RwLock::new(1);
        thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let _held = mutex.locked();
                let value = both.write_locked();
                assert_eq!(*value, 2, "a panic while it holds both");
            });
            assert!(panics.join().is_err());
        });
        assert!(mutex.is_poisoned() && both.is_poisoned());
        *both.write_locked() += *mutex.locked();
        assert_eq!(*both.read_locked(), 2);
    }
}
