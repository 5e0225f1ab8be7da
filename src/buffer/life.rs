// SPDX-License-Identifier: GPL-2.0

//! The life of a buffer: its state, changed atomically in any context; what of the GPU memory goes
//! before the buffer does; and the free callback's wait.
//!
//! The host tests run this file, and those that it depends on, in all orders of their steps.

use super::state::{
    Refused,
    Word, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed, //
        },
        new_mutex,
        Arc,
        Mutex, //
    },
    time::Msecs,
};
use nvfs_kernel::{
    completion::Event,
    p2pdma::Memory, //
};

/// The state of a buffer, shared with the GPU driver's free callback.
#[pin_data]
pub(crate) struct Life {
    word: Atomic<u32>,
    /// P2PDMA pages of the GPU memory, once they were found. They go with the GPU memory.
    #[pin]
    pub(super) memory: Mutex<Option<Arc<Memory>>>,
    /// The GPU, once it is known, to be traced.
    pub(super) gpu: Atomic<u64>,
    /// Nothing that a free callback waits for is left.
    #[pin]
    idle: Event,
}

impl Life {
    /// The life of a buffer that is not mapped to a GPU. May sleep. Fails with `ENOMEM`.
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                word: Atomic::new(Word::NEW.bits()),
                memory <- new_mutex!(None),
                gpu: Atomic::new(0),
                idle <- Event::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Makes one change of the state; returns the state after it. Callable in any context.
    pub(super) fn change(
        &self,
        change: impl Fn(Word) -> Result<Word, Refused>,
    ) -> Result<Word, Refused> {
        let mut old = self.word.load(Relaxed);
        loop {
            let new = change(Word::from_bits(old))?;
            match self.word.cmpxchg(old, new.bits(), Full) {
                Ok(_) => return Ok(new),
                Err(current) => old = current,
            }
        }
    }

    /// A change that is always allowed.
    pub(super) fn set(&self, change: impl Fn(Word) -> Word) -> Word {
        match self.change(|word| Ok(change(word))) {
            Ok(word) => word,
            // `change` above never refuses.
            Err(_) => Word::NEW,
        }
    }

    pub(super) fn word(&self) -> Word {
        Word::from_bits(self.word.load(Acquire))
    }

    /// The transfer under way is over. Callable in any context.
    pub(super) fn end_io(&self) {
        if self.set(Word::end_io).is_drained() {
            self.idle.complete_all();
        }
    }

    /// A storage driver gives a segment back. `false`: none was out. Callable in any context.
    pub(super) fn end_segment(&self) -> bool {
        match self.change(Word::end_segment) {
            Ok(word) => {
                if word.is_drained() {
                    self.idle.complete_all();
                }
                true
            }
            Err(_) => false,
        }
    }

    /// The GPU memory is going away: no new transfer may begin. Waits for the end of the one under
    /// way, calls `late` if that takes longer than `patience`, and waits on. Sleeps.
    pub(super) fn revoke(&self, patience: Msecs, late: impl FnOnce()) {
        if !self.set(Word::revoke).is_drained() && !self.idle.wait_at_most(patience) {
            late();
            self.idle.wait();
        }
        // Nobody uses the pages any more, and who unbinds the GPU waits for us to let them go.
        let memory = self.memory.lock().take();
        drop(memory);
    }
}

/// A MAP under way. Dropping it undoes the change of state.
pub(super) struct Attempt<'a>(&'a Life);

impl<'a> Attempt<'a> {
    /// Fails with `EINVAL` unless the buffer was never mapped.
    pub(super) fn begin(life: &'a Life) -> Result<Self> {
        life.change(Word::begin_map).map_err(|_| EINVAL)?;
        Ok(Self(life))
    }

    pub(super) fn succeed(self) {
        let attempt = core::mem::ManuallyDrop::new(self);
        attempt.0.set(Word::end_map);
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.0.set(Word::fail_map);
    }
}
