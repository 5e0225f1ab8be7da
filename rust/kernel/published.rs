// SPDX-License-Identifier: GPL-2.0

//! A value that is read in any context without a lock, and replaced as a whole.
//!
//! C header: `include/linux/rcupdate.h`.

use core::marker::PhantomData;
use kernel::{
    bindings,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        rcu,
        Arc, //
    },
};

/// A value that is replaced by RCU.
///
/// # Invariants
///
/// The pointer is from [`Arc::into_raw`], and that reference is given up only when no reader that
/// could have seen the pointer is left.
pub struct Published<T> {
    current: Atomic<*mut T>,
    _owns: PhantomData<Arc<T>>,
}

// SAFETY: It is a reference on a `T` that other threads read and drop.
unsafe impl<T: Send + Sync> Send for Published<T> {}
// SAFETY: As above.
unsafe impl<T: Send + Sync> Sync for Published<T> {}

impl<T> Published<T> {
    /// Begins with `value`.
    pub fn new(value: Arc<T>) -> Self {
        // INVARIANT: Just made, and nobody has seen it.
        Self {
            current: Atomic::new(Arc::into_raw(value).cast_mut()),
            _owns: PhantomData,
        }
    }

    /// Reads the value of this moment. `read` must not sleep. Callable in any context.
    pub fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        let guard = rcu::read_lock();
        // SAFETY: By the type invariant it is valid for as long as `guard` lives.
        let result = read(unsafe { &*self.current.load(Acquire) });
        drop(guard);
        result
    }

    /// Puts another value in its place. Waits until nobody reads the old one. May sleep.
    pub fn replace(&self, value: Arc<T>) {
        let new = Arc::into_raw(value).cast_mut();
        // INVARIANT: Readers come to see the new one, which is ours.
        let old = self.current.xchg(new, Full);
        // SAFETY: No requirements.
        unsafe { bindings::synchronize_rcu() };
        // SAFETY: By the type invariant it is a reference of ours; it can't be found any more, and
        // those who had found it are done.
        drop(unsafe { Arc::from_raw(old.cast_const()) });
    }
}

impl<T> Drop for Published<T> {
    fn drop(&mut self) {
        let last = self.current.load(Acquire);
        // SAFETY: By the type invariant; readers borrow `self`, so there are none.
        drop(unsafe { Arc::from_raw(last.cast_const()) });
    }
}
