// SPDX-License-Identifier: GPL-2.0

use crate::context;
use kernel::{init::init, prelude::*, time::Msecs};
use loom::sync::{Condvar, Mutex};

/// As `struct completion`.
pub struct Event {
    done: Mutex<u32>,
    changed: Condvar,
}

impl Event {
    pub fn new() -> impl PinInit<Self> {
        init(|| {
            Ok(Self {
                done: Mutex::new(0),
                changed: Condvar::new(),
            })
        })
    }

    pub fn complete_all(&self) {
        self.change(|_| u32::MAX);
    }

    pub fn complete(&self) {
        self.change(|done| done.saturating_add(1));
    }

    fn change(&self, change: impl FnOnce(u32) -> u32) {
        let mut done = self.done.lock().unwrap();
        *done = change(*done);
        // Under the lock, as the kernel does: who waits may free the event afterwards.
        self.changed.notify_all();
    }

    /// Whether it happened before, if `patient` is not set.
    fn wait_if(&self, patient: bool) -> bool {
        let mut done = self.done.lock().unwrap();
        while *done == 0 {
            if !patient {
                return false;
            }
            done = self.changed.wait(done).unwrap();
        }
        if *done != u32::MAX {
            *done -= 1;
        }
        true
    }

    pub fn wait(&self) {
        self.wait_if(true);
    }

    pub fn wait_killable(&self) -> bool {
        self.wait_if(!context::is_killed())
    }

    /// Time is up at once: it may be late in coming here.
    pub fn wait_at_most(&self, _limit: Msecs) -> bool {
        self.wait_if(false)
    }
}
