// SPDX-License-Identifier: GPL-2.0

//! Block plugs: what a task submits under one goes to the drivers in lists, not one by one.
//!
//! C header: `include/linux/blkdev.h`.

use crate::bindings;
use core::marker::PhantomPinned;
use kernel::{
    prelude::*,
    types::{
        NotThreadSafe,
        Opaque, //
    },
};

/// Holds back the block requests of the current task until it is dropped or the task sleeps.
///
/// Plugs may be nested: only the outermost has an effect.
///
/// # Examples
///
/// ```ignore
/// stack_pin_init!(let _plug = Plug::start());
/// ```
///
/// # Invariants
///
/// `inner` was given to `blk_start_plug` in the current task. If the task's plug points to it, it
/// is initialized.
#[pin_data(PinnedDrop)]
pub struct Plug {
    #[pin]
    inner: Opaque<bindings::blk_plug>,
    #[pin]
    _pin: PhantomPinned,
    _task: NotThreadSafe,
}

impl Plug {
    /// Begins. Use it on the stack, in process context.
    pub fn start() -> impl PinInit<Self> {
        // INVARIANT: Started in place, in the current task, which cannot send it to another.
        pin_init!(Self {
            inner <- Opaque::ffi_init(|inner| {
                // SAFETY: Memory for a plug, which stays where it is until the `Drop` below.
                unsafe { bindings::blk_start_plug(inner) }
            }),
            _pin: PhantomPinned,
            _task: NotThreadSafe,
        })
    }
}

#[pinned_drop]
impl PinnedDrop for Plug {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariants. It does nothing for a plug that is not the task's.
        unsafe { bindings::blk_finish_plug(self.inner.get()) }
    }
}
