// SPDX-License-Identifier: GPL-2.0

//! How often modules came and went so far, to tell whether a look for new ones can find any.
//!
//! C headers: `include/linux/module.h`, `include/linux/notifier.h`.

use crate::bindings;
use kernel::{
    error::to_result,
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
    types::Opaque, //
};

static CHANGES: Atomic<u32> = Atomic::new(0);

/// Changes each time a module has come, or goes. Meaningful while a [`Watch`] lives.
pub fn changes() -> u32 {
    CHANGES.load(Relaxed)
}

/// Counts the modules that come and go.
///
/// # Invariants
///
/// `block` is registered with the chain of modules.
#[pin_data(PinnedDrop)]
pub struct Watch {
    #[pin]
    block: Opaque<bindings::notifier_block>,
}

// SAFETY: The chain has its own lock.
unsafe impl Send for Watch {}
// SAFETY: As above.
unsafe impl Sync for Watch {}

impl Watch {
    /// Starts counting. May sleep.
    pub fn new() -> impl PinInit<Self, Error> {
        // INVARIANT: Registered, or there is an error.
        try_pin_init!(Self {
            block <- Opaque::try_ffi_init(|block: *mut bindings::notifier_block| {
                // SAFETY: Memory for a notifier block, pinned from now on.
                unsafe {
                    block.write(bindings::notifier_block {
                        notifier_call: Some(notify),
                        ..core::mem::zeroed()
                    });
                    to_result(bindings::register_module_notifier(block))
                }
            }),
        })
    }
}

#[pinned_drop]
impl PinnedDrop for Watch {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant.
        unsafe { bindings::unregister_module_notifier(self.block.get()) };
    }
}

/// # Safety
///
/// Only for the chain of modules.
unsafe extern "C" fn notify(
    _block: *mut bindings::notifier_block,
    event: c_ulong,
    _module: *mut c_void,
) -> c_int {
    if event == bindings::module_state_MODULE_STATE_LIVE as c_ulong
        || event == bindings::module_state_MODULE_STATE_GOING as c_ulong
    {
        CHANGES.fetch_add(1, Relaxed);
    }
    // NOTIFY_DONE
    0
}
