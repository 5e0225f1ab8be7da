// SPDX-License-Identifier: GPL-2.0

//! Waiting for a transfer, until a fatal signal: who waits and who completes the transfer agree on
//! who of them ends it.

use kernel::{
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Full,
        Relaxed, //
    },
};
use nvfs_kernel::completion::Event;

const NOBODY: u32 = 0;
const WAITING: u32 = 1;
const GONE: u32 = 2;

/// Who waits for the one transfer of a buffer.
#[pin_data]
pub(crate) struct Waiter {
    /// `NOBODY` → `WAITING` → `GONE`, and back to `NOBODY` by the completion.
    state: Atomic<u32>,
    /// Bytes, or a negative errno.
    result: Atomic<i64>,
    #[pin]
    done: Event,
}

/// Whom a completion found.
pub(super) enum Found {
    /// Nobody has ever waited.
    Nobody,
    /// It is told, and ends the transfer.
    Waiter,
    /// It is gone: the completion ends the transfer.
    Gone,
}

impl Waiter {
    /// Nobody waits.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state: Atomic::new(NOBODY),
            result: Atomic::new(0),
            done <- Event::new(),
        })
    }

    /// The caller will wait for the transfer that it is about to start.
    pub(super) fn begin(&self) {
        self.state.store(WAITING, Relaxed);
    }

    /// The transfer was over at once, or was not started.
    pub(super) fn cancel(&self) {
        self.state.store(NOBODY, Relaxed);
    }

    /// Waits for the end. `None` when the task is killed before: then the completion ends the
    /// transfer. Sleeps.
    pub(super) fn wait(&self) -> Option<Result<usize>> {
        if !self.done.wait_killable() {
            if self.state.cmpxchg(WAITING, GONE, Full).is_ok() {
                return None;
            }
            // The completion was first, and is about to tell.
            self.done.wait();
        }
        Some(super::unpack(self.result.load(Relaxed)))
    }

    /// The transfer is over. Callable in any context.
    pub(super) fn tell(&self, result: &Result<usize>) -> Found {
        if self.state.load(Acquire) == NOBODY {
            return Found::Nobody;
        }
        self.result.store(super::pack(result), Relaxed);
        if self.state.xchg(NOBODY, Full) == GONE {
            return Found::Gone;
        }
        self.done.complete();
        Found::Waiter
    }
}
