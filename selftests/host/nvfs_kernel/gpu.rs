// SPDX-License-Identifier: GPL-2.0

//! Pinned GPU memory, without its page table.

#[path = "../../../rust/kernel/gpu/callbacks.rs"]
mod callbacks;

use crate::{completion::Event, context};
use callbacks::Freed;
use core::ptr::without_provenance_mut;
use kernel::{prelude::*, sync::Arc};

/// As the module's, as far as it matters here.
pub trait Owner: Send + Sync + 'static {
    fn stop(&self);
    fn gone(&self);
}

#[pin_data]
struct Inner<O> {
    owner: O,
    #[pin]
    callbacks_over: Event,
}

struct Shared<O>(Arc<Inner<O>>);

impl<O: Owner> Freed for Shared<O> {
    fn freed(&self) {
        self.0.owner.stop();
        self.0.owner.gone();
        context::run_code();
    }

    fn callbacks_over(&self) {
        self.0.callbacks_over.complete_all();
    }
}

pub struct PinnedGpu<O: Owner> {
    number: usize,
    inner: Arc<Inner<O>>,
}

impl<O: Owner> PinnedGpu<O> {
    pub fn new(owner: O) -> Self {
        let inner = Arc::pin_init(
            pin_init!(Inner {
                owner: owner,
                callbacks_over <- Event::new(),
            }),
            GFP_KERNEL,
        )
        .unwrap();
        let shared = std::sync::Arc::new(Shared(inner.clone()));
        Self {
            number: callbacks::register(Arc::from_std(shared)).unwrap(),
            inner,
        }
    }

    /// What the GPU driver knows of it.
    pub fn number(&self) -> usize {
        self.number
    }
}

impl<O: Owner> Drop for PinnedGpu<O> {
    fn drop(&mut self) {
        callbacks::unregister(self.number, &self.inner.callbacks_over);
    }
}

/// The GPU driver calls the free callback.
pub fn free(number: usize) {
    // SAFETY: Any argument is safe.
    unsafe { callbacks::free_callback(without_provenance_mut(number)) }
}
