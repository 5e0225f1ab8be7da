// SPDX-License-Identifier: GPL-2.0

//! A completion that can be waited for with a limit, which the kernel crate's cannot.
//!
//! C header: `include/linux/completion.h`.

use crate::bindings;
use kernel::{
    prelude::*,
    time::{
        msecs_to_jiffies,
        Msecs, //
    },
    types::Opaque,
};

/// Something that happens: once for all who wait, or once for each.
///
/// # Invariants
///
/// `inner` is an initialized `struct completion`.
#[pin_data]
pub struct Event {
    #[pin]
    inner: Opaque<bindings::completion>,
}

// SAFETY: `struct completion` has its own lock.
unsafe impl Send for Event {}
// SAFETY: As above; the lock is safe in every context.
unsafe impl Sync for Event {}

impl Event {
    /// An event that has not happened.
    pub fn new() -> impl PinInit<Self> {
        // INVARIANT: Initialized in place.
        pin_init!(Self {
            inner <- Opaque::ffi_init(|inner| {
                // SAFETY: Memory for a completion, pinned from now on.
                unsafe { bindings::nvfs_helper_init_completion(inner) }
            }),
        })
    }

    /// It happened: wakes all who wait now or later. Callable in any context.
    pub fn complete_all(&self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::complete_all(self.inner.get()) }
    }

    /// It happened once more: wakes one that waits now or later. Callable in any context.
    pub fn complete(&self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::complete(self.inner.get()) }
    }

    /// Waits until it happened; tells whether it did, or the task was killed before. Sleeps.
    pub fn wait_killable(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::wait_for_completion_killable(self.inner.get()) == 0 }
    }

    /// Waits until it happened, at most `limit`; tells whether it did. Sleeps, uninterruptibly.
    pub fn wait_at_most(&self, limit: Msecs) -> bool {
        // SAFETY: By the type invariant.
        unsafe {
            bindings::wait_for_completion_timeout(self.inner.get(), msecs_to_jiffies(limit)) != 0
        }
    }

    /// Waits until it happened. Sleeps, uninterruptibly.
    pub fn wait(&self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::wait_for_completion(self.inner.get()) }
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::macros::kunit_tests(nvfs_completion)]
mod tests {
    use super::*;
    use kernel::sync::Arc;

    #[test]
    fn once_for_each_or_once_for_all() -> Result {
        let event = Arc::pin_init(Event::new(), GFP_KERNEL)?;
        assert!(!event.wait_at_most(1));
        event.complete();
        assert!(event.wait_killable());
        assert!(!event.wait_at_most(1));
        event.complete_all();
        event.wait();
        assert!(event.wait_at_most(1));
        assert!(event.wait_killable());
        Ok(())
    }
}
